"""The tables of `items.scaling`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.report.sections import spread
from experiments.reproduce.scaling_summary import CORPUS, REFERENCE, batches_needed, by_point, intervals

POOLED = "intervals' variance is pooled over the estimators of a size, number of epochs, k and B"


def needed_caption(tolerance: float) -> str:
    """What the cells of `needed_table` are."""
    return (
        f"The smallest B from which on the 95 % interval of the loss lies below {tolerance:.0%}, of those "
        "that were run; in brackets the largest B whose interval lies above it. — where no B was enough. The "
        f"{POOLED}."
    )


def needed_table(compared: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """`batches_needed` to be read: a row for each corpus, epochs and k, a column for each estimator."""
    needed = batches_needed(compared, tolerance)
    found = needed["enough"].map("{:g}".format).replace("nan", "—")
    bad = needed["too_small"].map(" ({:g})".format).replace(" (nan)", "")
    wide = needed.assign(cell=found + bad).pivot(index=CORPUS, columns="estimator", values="cell")
    wide = wide[list(dict.fromkeys(needed["estimator"]))].fillna("not run").reset_index()
    return wide.rename(columns={"dim": "k"}).rename_axis(columns=None)


def references_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The references: how near they come to the planted optimum, and how near their Gramians are to G."""
    rows = []
    reference = frame[frame["estimator"] == REFERENCE]
    for (items, epochs, dim, batch), group in reference.groupby([*CORPUS, "batch"], sort=False):
        rows.append(
            {
                "items": items,
                "epochs": epochs,
                "k": dim,
                "reference": f"SOGram α=0.1, B = {batch:,}" if batch else "exact Gramian",
                "MAP@10": spread(tuple(group["map@10"])),
                "planted optimum": f"{group['optimum'].iloc[0]:.4f}",
                "share of it": f"{(group['map@10'] / group['optimum']).mean():.1%}",
                "Gramian error": f"{group['error'].mean():.2%}",
                "effective rank of G": f"{group['rank'].mean():.1f}",
                "steps": int(group["steps"].iloc[0]),
            }
        )
    return pd.DataFrame(rows)


def losses_table(compared: pd.DataFrame) -> pd.DataFrame:
    """Every point: MAP@10, loss, interval, Gramian error."""
    error, score, ends = by_point(compared, "error"), by_point(compared, "map@10"), intervals(compared)
    rows = []
    for key, losses in by_point(compared, "loss").items():
        items, epochs, dim, estimator, batch = key
        low, high = ends[key]
        rows.append(
            {
                "items": items,
                "epochs": epochs,
                "k": dim,
                "estimator": estimator,
                "B": batch,
                "B/k": f"{batch / dim:g}",
                "MAP@10": spread(score[key]),
                "loss": f"{np.mean(losses):.2%}",
                "interval": f"[{low:.2%}, {high:.2%}]",
                "Gramian error": f"{np.mean(error[key]):.3g}",
                "seeds": len(losses),
            }
        )
    return pd.DataFrame(rows)
