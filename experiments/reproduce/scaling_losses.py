"""Losses of the runs of `items.scaling` by seed, and their tables."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.report.sections import Seeds, geometric, lift, spread

REFERENCE = "reference"  # in the estimator column: the runs that the others are compared with
CORPUS = ["items", "epochs", "dim"]  # what all estimators and B of a panel share
KEY = [*CORPUS, "estimator", "batch"]
Key = tuple[int, int, int, str, int]


def with_losses(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs of all estimators but the reference, beside the reference of the same seed.

    Args:
        frame: a row for each run, with the columns of `KEY`, ``seed`` and ``map@10``. Runs whose reference is
            not there are left out.

    Returns:
        with the columns ``kept``, MAP@10 over the reference's, and ``loss``, 1 − ``kept``.
    """
    own = [*CORPUS, "seed"]
    is_reference = frame["estimator"] == REFERENCE
    reference = frame.loc[is_reference, [*own, "map@10"]].rename(columns={"map@10": "reference_map"})
    joined = frame[~is_reference].merge(reference, on=own)
    kept = joined["map@10"] / joined["reference_map"]
    return joined.assign(kept=kept, loss=1 - kept)


def by_point(frame: pd.DataFrame, column: str) -> dict[Key, Seeds]:
    """The values of a column for each (items, epochs, k, estimator, B), in the order of the seeds."""
    ordered = frame.sort_values("seed", kind="stable")
    return {
        (int(items), int(epochs), int(dim), str(name), int(batch)): tuple(group[column])
        for (items, epochs, dim, name, batch), group in ordered.groupby(KEY, sort=False)
    }


def lift_over_sampling(
    frame: pd.DataFrame, estimator: str = "SOGram α=0.1"
) -> dict[tuple[int, int, int, int], Seeds]:
    """MAP@10 over sampling's, by seed, for each (items, epochs, k, B)."""
    own = [*CORPUS, "batch"]
    columns = [*own, "seed", "map@10"]
    first = frame.loc[frame["estimator"] == estimator, columns]
    sampling = frame.loc[frame["estimator"] == "sampling", columns]
    joined = first.merge(sampling, on=[*own, "seed"]).sort_values("seed")
    joined = joined.assign(lift=joined["map@10_x"] / joined["map@10_y"])
    return {
        (int(items), int(epochs), int(dim), int(batch)): tuple(group["lift"])
        for (items, epochs, dim, batch), group in joined.groupby(own)
    }


def lifts_table(compared: pd.DataFrame) -> pd.DataFrame:
    """The lift of every averaging estimator over sampling, by corpus, k and B."""
    rows: dict[tuple[int, int, int, int], dict[str, str]] = {}
    for estimator in dict.fromkeys(compared["estimator"]):
        if estimator != "sampling":
            for key, values in lift_over_sampling(compared, estimator).items():
                rows.setdefault(key, {})[estimator] = lift(values)
    heads = ("items", "epochs", "k", "B")
    return pd.DataFrame([dict(zip(heads, key, strict=True)) | rows[key] for key in sorted(rows)])


def references_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The references: their MAP@10 relative to the planted optimum, and the error of their Gramians."""
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
                "candidates": f"{group['candidates'].iloc[0]:.0%}",
            }
        )
    return pd.DataFrame(rows)


def losses_table(compared: pd.DataFrame) -> pd.DataFrame:
    """Every point: MAP@10, loss, interval, Gramian error."""
    error, score = by_point(compared, "error"), by_point(compared, "map@10")
    rows = []
    for key, kept in by_point(compared, "kept").items():
        items, epochs, dim, estimator, batch = key
        loss, high, low = (1 - x for x in geometric(kept))
        rows.append(
            {
                "items": items,
                "epochs": epochs,
                "k": dim,
                "estimator": estimator,
                "B": batch,
                "B/k": f"{batch / dim:g}",
                "MAP@10": spread(score[key]),
                "loss": f"{loss:.2%}",
                "interval": "" if np.isnan(low) else f"[{low:.2%}, {high:.2%}]",
                "Gramian error": f"{np.mean(error[key]):.3g}",
                "seeds": len(kept),
            }
        )
    return pd.DataFrame(rows)
