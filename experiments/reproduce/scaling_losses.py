"""Losses of the runs of `items.scaling` by seed, the batch size that each estimator needs, and tables.

A batch size is *enough* where the 95 % interval of the loss over seeds (Student's t) lies below the
tolerance, at it and at every larger B that was run; it is *too small* where the interval lies above. The
variance is pooled over the estimators of a size, k and B, since three seeds alone estimate it poorly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from experiments.report.sections import Seeds, spread, with_interval

REFERENCE = "reference"  # in the estimator column: the runs that the others are compared with
CORPUS = ["items", "epochs", "dim"]  # what all estimators and B of a panel share
KEY = [*CORPUS, "estimator", "batch"]
POOLED = "intervals' variance is pooled over the estimators of a size, number of epochs, k and B"
Key = tuple[int, int, int, str, int]


def with_losses(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs of all estimators but the reference, with ``loss`` against the reference of the same seed.

    Args:
        frame: a row for each run, with the columns of `KEY`, ``seed`` and ``map@10``. Runs whose reference is
            not there are left out.
    """
    own = [*CORPUS, "seed"]
    is_reference = frame["estimator"] == REFERENCE
    reference = frame.loc[is_reference, [*own, "map@10"]].rename(columns={"map@10": "reference_map"})
    joined = frame[~is_reference].merge(reference, on=own)
    return joined.assign(loss=1 - joined["map@10"] / joined["reference_map"])


def by_point(frame: pd.DataFrame, column: str) -> dict[Key, Seeds]:
    """The values of a column for each (items, epochs, k, estimator, B), in the order of the seeds."""
    ordered = frame.sort_values("seed", kind="stable")
    return {
        (int(items), int(epochs), int(dim), str(name), int(batch)): tuple(group[column])
        for (items, epochs, dim, name, batch), group in ordered.groupby(KEY, sort=False)
    }


def intervals(compared: pd.DataFrame) -> dict[Key, tuple[float, float]]:
    """Each point's mean loss with its 95 % interval; NaN where there is no second seed.

    Args:
        compared: `with_losses`'s, of all estimators.
    """
    losses = by_point(compared, "loss")
    same: dict[tuple[int, ...], list[Seeds]] = {}
    for (*corpus, _, batch), values in losses.items():
        same.setdefault((*corpus, batch), []).append(values)
    found = {}
    for (*corpus, name, batch), values in losses.items():
        groups = same[(*corpus, batch)]
        freedom = sum(len(group) - 1 for group in groups)
        squares = sum(len(group) * float(np.var(group)) for group in groups)
        error = np.sqrt(squares / freedom / len(values)) if freedom else float("nan")
        half = float(stats.t.ppf(0.975, freedom) * error) if freedom else float("nan")
        mean = float(np.mean(values))
        found[(*corpus, name, batch)] = (mean - half, mean + half)
    return found


def enough(ends: Mapping[int, tuple[float, float]], tolerance: float) -> int | None:
    """The smallest B such that it and all larger B are enough; None if the largest is not.

    Args:
        ends: of the interval of the loss, by B.
        tolerance: the loss that counts as none.
    """
    found = None
    for batch in sorted(ends, reverse=True):
        if not ends[batch][1] < tolerance:  # also where it is NaN, of one seed
            break
        found = batch
    return found


def too_small(ends: Mapping[int, tuple[float, float]], tolerance: float) -> int | None:
    """The largest B that is too small; None if there is none."""
    return max((batch for batch, (low, _) in ends.items() if low > tolerance), default=None)


def lift_over_sampling(
    frame: pd.DataFrame, estimator: str = "SOGram α=0.1"
) -> dict[tuple[int, int, int, int], Seeds]:
    """MAP@10 over sampling's less 1, by seed, for each (items, epochs, k, B)."""
    own = [*CORPUS, "batch"]
    columns = [*own, "seed", "map@10"]
    first = frame.loc[frame["estimator"] == estimator, columns]
    sampling = frame.loc[frame["estimator"] == "sampling", columns]
    joined = first.merge(sampling, on=[*own, "seed"]).sort_values("seed")
    joined = joined.assign(lift=joined["map@10_x"] / joined["map@10_y"] - 1)
    return {
        (int(items), int(epochs), int(dim), int(batch)): tuple(group["lift"])
        for (items, epochs, dim, batch), group in joined.groupby(own)
    }


def needed_table(compared: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """The B that is enough, and in brackets the B that is too small, by corpus, k and estimator."""
    every = intervals(compared)
    rows = []
    for key in compared[KEY[:-1]].drop_duplicates().itertuples(index=False):
        ends = {batch: found for (*own, batch), found in every.items() if tuple(own) == tuple(key)}
        least, bad = enough(ends, tolerance), too_small(ends, tolerance)
        cell = ("—" if least is None else str(least)) + ("" if bad is None else f" ({bad})")
        rows.append(dict(zip(KEY[:-1], key, strict=True)) | {"cell": cell})
    wide = pd.DataFrame(rows).pivot(index=CORPUS, columns="estimator", values="cell")
    wide = wide[list(dict.fromkeys(compared["estimator"]))].fillna("not run").reset_index()
    return wide.rename(columns={"dim": "k"}).rename_axis(columns=None)


def lifts_table(compared: pd.DataFrame) -> pd.DataFrame:
    """The lift of every averaging estimator over sampling, by corpus, k and B."""
    rows: dict[tuple[int, int, int, int], dict[str, str]] = {}
    for estimator in dict.fromkeys(compared["estimator"]):
        if estimator != "sampling":
            for key, values in lift_over_sampling(compared, estimator).items():
                rows.setdefault(key, {})[estimator] = with_interval(values, "+.1%")
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
