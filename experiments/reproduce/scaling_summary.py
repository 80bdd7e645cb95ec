"""Losses of the runs of `items.scaling` by seed, and the batch size that each estimator needs.

A batch size is *enough* where the 95 % interval of the loss over seeds (Student's t) lies below the
tolerance, at it and at every larger B that was run; it is *too small* where the interval lies above the
tolerance. Between the two the seeds do not tell. The variance is pooled over the estimators of a size, k and
B: three seeds alone tell little of it, and where there are fewer a larger B would seem to be needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from experiments.report.sections import Seeds, interval

REFERENCE = "reference"  # the estimator column's word for the runs that others are held against
CORPUS = ["items", "epochs", "dim"]  # what all estimators and B of a panel share
KEY = [*CORPUS, "estimator", "batch"]
Key = tuple[int, int, int, str, int]


def in_epochs(count: int) -> str:
    """A number of epochs in words."""
    return f"{count} epoch{'s' * (count != 1)}"


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


def intervals(frame: pd.DataFrame) -> dict[Key, tuple[float, float]]:
    """Each point's mean loss with its 95 % interval by Student's t; NaN where there is no second seed.

    Args:
        frame: `with_losses`'s, of all estimators: the variance is pooled over those of a size,
            number of epochs, k and B.
    """
    losses = by_point(frame, "loss")
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
    """The smallest B from which on all that were run are enough; None where the largest is not.

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
    """The largest B that is too small; None where no B is shown to be."""
    return max((batch for batch, (low, _) in ends.items() if low > tolerance), default=None)


def batches_needed(frame: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """Which B are enough and too small (NaN where none is), and the largest run, by corpus and estimator.

    Args:
        frame: `with_losses`'s.
        tolerance: the loss that counts as none.

    Returns:
        The columns ``items``, ``epochs``, ``dim``, ``estimator``, ``enough``, ``too_small``, ``largest`` and
        ``seeds``.
    """
    rows, every = [], intervals(frame)
    for key, group in frame.groupby(KEY[:-1], sort=False):
        ends = {batch: found for (*own, batch), found in every.items() if own == list(key)}
        found = {"enough": enough(ends, tolerance), "too_small": too_small(ends, tolerance)}
        own = dict(zip(KEY[:-1], key, strict=True))
        rows.append({**own, **found, "largest": max(ends), "seeds": group["seed"].nunique()})
    columns = (*KEY[:-1], "enough", "too_small", "largest", "seeds")
    return pd.DataFrame(rows, columns=columns).astype({"enough": float, "too_small": float})


def difference(first: Seeds, second: Seeds) -> tuple[float, float, float]:
    """Mean of `second` less that of `first`, and its 95 % interval (Welch); NaN ends for a single seed."""
    mean = float(np.mean(second) - np.mean(first))
    if min(len(first), len(second)) < 2 or np.ptp(first) == np.ptp(second) == 0:
        return mean, float("nan"), float("nan")
    low, high = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    return mean, float(low), float(high)


def verdict(frame: pd.DataFrame, tolerance: float) -> str:
    """The paragraph.

    Args:
        frame: `with_losses`'s, with the columns ``error`` and ``rank``.
        tolerance: the loss that counts as none.
    """
    parts = [
        _where_it_costs(frame, tolerance),
        *_growth(frame),
        *_averaging(frame, tolerance),
        _what_orders(frame),
        _errors_that_cost(frame, tolerance),
    ]
    return " ".join(part for part in parts if part)


def _where_it_costs(frame: pd.DataFrame, tolerance: float) -> str:
    """The B that sampling needs at each size and k, and the rule of thumb over all of them."""
    needed = batches_needed(frame, tolerance)
    sampling = needed[needed["estimator"] == "sampling"]
    if sampling.empty:
        return ""
    told = []
    for row in sampling.itertuples():
        need = f"at no B up to {row.largest}"
        if not np.isnan(row.enough):
            need = f"from B = {row.enough:g} on (B/k = {row.enough / row.dim:g})"
        told.append(f"{need} with {row.items:,} items, {in_epochs(row.epochs)} and k = {row.dim}")
    text = f"Batch sampling is shown to lose less than {tolerance:.0%} of the reference's MAP@10 "
    text += f"{', '.join(told)}."
    if sampling["seeds"].nunique() > 1:
        text += f" ({sampling['seeds'].min()} to {sampling['seeds'].max()} seeds: fewer show less.)"
    return f"{text} {_rule_of_thumb(sampling)}"


def _rule_of_thumb(sampling: pd.DataFrame) -> str:
    """The B/k that was enough wherever one was, and that it is no upper bound where one was not."""
    shown, open_ones = (sampling[which] for which in (sampling["enough"].notna(), sampling["enough"].isna()))
    ratio = (shown["enough"] / shown["dim"]).max()
    if open_ones.empty:
        return f"Rule of thumb from these: B ≥ {ratio:g} k is enough for sampling."
    tried = (open_ones["largest"] / open_ones["dim"]).max()
    if shown.empty:
        return f"No rule of thumb from these: up to B = {tried:g} k none is shown to be enough for sampling."
    return (
        f"Rule of thumb from the {len(shown)} of {len(sampling)} that show one: at least B = {ratio:g} k; in "
        f"the other {len(open_ones)} nothing up to B = {tried:g} k is shown to be enough: it may take more."
    )


def _growth(frame: pd.DataFrame) -> list[str]:
    """SOGram's lift over sampling at the smallest and the largest B, and whether it grows with the corpus."""
    told = []
    for dim, rows in frame.groupby("dim"):
        families = [(f"after {in_epochs(epochs)}", own) for epochs, own in rows.groupby("epochs")]
        # As many passes over items as passes · items say: as many steps, nearly, for links grow like items.
        equal_steps = rows.groupby(rows["items"] * rows["epochs"])
        families += [(f"after about {_steps(own):,} steps", own) for _, own in equal_steps]
        several = [(when, own) for when, own in families if own["items"].nunique() > 1]
        for when, own in several or families[:1]:
            told += _growth_at(f"At k = {dim} {when}", own)
    return told


def _steps(frame: pd.DataFrame) -> int:
    """The steps of the runs of a frame, to two digits."""
    return int(float(f"{frame['steps'].mean():.1e}"))


def _growth_at(where: str, frame: pd.DataFrame) -> list[str]:
    """A sentence for the smallest B and one for the largest that all sizes have; of one k."""
    lifts = {(items, batch): values for (items, _, batch), values in lift_over_sampling(frame).items()}
    sizes = sorted(frame["items"].unique())
    batches = [
        batch for batch in sorted({b for _, b in lifts}) if all((size, batch) in lifts for size in sizes)
    ]
    told = []
    for batch in dict.fromkeys(batches[:1] + batches[-1:]):
        by_size = ", ".join(f"{_percent(lifts[size, batch])} at {size:,} items" for size in sizes)
        text = f"{where} and B = {batch}, SOGram α=0.1's lift over sampling is {by_size}"
        if len(sizes) > 1:
            text += f": it {_change(lifts[sizes[0], batch], lifts[sizes[-1], batch])}"
        told.append(f"{text}.")
    return told


def _change(small: Seeds, large: Seeds) -> str:
    """How a lift on the largest corpus compares with that on the smallest."""
    mean, low, high = difference(small, large)
    ends = f"by {100 * mean:+.1f} points, [{100 * low:+.1f}, {100 * high:+.1f}]"
    if low > 0:
        return f"grows with the corpus ({ends})"
    if high < 0:
        return f"shrinks with the corpus ({ends})"
    return f"does not change with the corpus beyond the seeds' spread ({ends})"


def _percent(values: Seeds) -> str:
    """Mean and interval, or the one value."""
    low, high = interval(values)
    return f"{np.mean(values):+.1%}" + ("" if np.isnan(low) else f" [{low:+.1%}, {high:+.1%}]")


def lift_over_sampling(
    frame: pd.DataFrame, estimator: str = "SOGram α=0.1"
) -> dict[tuple[int, int, int], Seeds]:
    """MAP@10 over sampling's less 1, by seed, for each (items, epochs, B); of one k."""
    own = ["items", "epochs", "batch"]
    columns = [*own, "seed", "map@10"]
    first = frame.loc[frame["estimator"] == estimator, columns]
    sampling = frame.loc[frame["estimator"] == "sampling", columns]
    joined = first.merge(sampling, on=[*own, "seed"]).sort_values("seed")
    joined = joined.assign(lift=joined["map@10_x"] / joined["map@10_y"] - 1)
    return {
        (int(items), int(epochs), int(batch)): tuple(group["lift"])
        for (items, epochs, batch), group in joined.groupby(own)
    }


def _averaging(frame: pd.DataFrame, tolerance: float) -> list[str]:
    """How small a B the others make do with, and where one ranks below sampling, which does not average."""
    needed = batches_needed(frame, tolerance)
    needed = needed[needed["estimator"] != "sampling"]
    told = []
    for name, rows in needed.groupby("estimator", sort=False):
        found = rows["enough"]
        if found.notna().all():
            ratio = (rows["enough"] / rows["dim"]).max()
            told.append(
                f"{name} has enough with B = {found.max():g} (B/k = {ratio:g}) or less wherever it ran."
            )
    for name, dim in itertools.product(dict.fromkeys(needed["estimator"]), sorted(set(needed["dim"]))):
        lifts = lift_over_sampling(frame[frame["dim"] == dim], name)
        below = [
            f"{items:,} items, {in_epochs(epochs)} and B = {batch} ({_percent(values)})"
            for (items, epochs, batch), values in lifts.items()
            if interval(values)[1] < 0
        ]
        if below:
            told.append(
                f"{name} ranks below sampling at k = {dim} with {', '.join(below)}: there its lag costs more "
                "than its averaging saves."
            )
    return told


def _what_orders(frame: pd.DataFrame) -> str:
    """Whether losses rise with the measured Gramian error, or fall with B/k, more closely."""
    means = frame.assign(ratio=frame["batch"] / frame["dim"]).groupby(KEY)[["loss", "error", "ratio"]].mean()
    if len(means) < 4 or (means.nunique() < 2).any():  # nothing to put in order
        return ""
    by_error = float(stats.spearmanr(means["error"], means["loss"]).statistic)
    by_ratio = -float(stats.spearmanr(means["ratio"], means["loss"]).statistic)
    better, worse = ("the measured error", "B/k") if by_error > by_ratio else ("B/k", "the measured error")
    return (
        f"Over all {len(means)} points {better} orders the losses better than {worse} does (rank correlation "
        f"{max(by_error, by_ratio):.2f} against {min(by_error, by_ratio):.2f})."
    )


def _errors_that_cost(frame: pd.DataFrame, tolerance: float) -> str:
    """The smallest Gramian error that is shown to cost, and the largest that is shown not to."""
    error = {key: float(np.mean(values)) for key, values in by_point(frame, "error").items()}
    ends = intervals(frame)
    costly = [error[key] for key, (low, _) in ends.items() if low > tolerance]
    harmless = [error[key] for key, (_, high) in ends.items() if high < tolerance]
    parts = []
    if costly:
        parts.append(
            f"the smallest ‖Ĝ − G‖ / ‖G‖ that is shown to cost more than {tolerance:.0%} is {min(costly):.2g}"
        )
    if harmless:
        parts.append(f"the largest that is shown to cost less is {max(harmless):.2g}")
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
