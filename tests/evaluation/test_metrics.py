"""Metrics against rankings worked by hand, an independent library, and the bootstrap's own promises."""

import math

import ir_measures
import numpy as np
import pytest

from gramrun.evaluation import metrics


def csr(*rows):
    """Lists of ranks, one for each left item, in the form that the metrics take."""
    offsets = np.cumsum([0, *map(len, rows)])
    return np.array([rank for row in rows for rank in row], dtype=np.int64), offsets


ALL_METRICS = (metrics.average_precision, metrics.average_precision_relevant, metrics.recall, metrics.ndcg)

# Relevant items at ranks 1, 3 and 6: precision there is 1/1, 2/3 and 3/6.
BY_HAND = csr([1, 3, 6], [2], [9], [1, 2, 3, 4, 5, 6])


TOPS = csr([1, 2, 3, 4], [1], [2, 3])
AP = (1 + 2 / 3) / 3  # at k = 5 the item at rank 6 is missed; min(5, 3) = 3
NDCG = (1 + 1 / math.log2(4)) / (1 + 1 / math.log2(3) + 1 / math.log2(4))


@pytest.mark.parametrize(
    ("metric", "at_5", "at_1"),
    [
        (metrics.average_precision, [AP, 1 / 2, 0, 1], [1, 1, 0]),
        (metrics.average_precision_relevant, [AP, 1 / 2, 0, 5 / 6], [1 / 4, 1, 0]),
        (metrics.recall, [2 / 3, 1, 0, 5 / 6], [1 / 4, 1, 0]),
        (metrics.ndcg, [NDCG, 1 / math.log2(3), 0, 1], [1, 1, 0]),
    ],
)
def test_metrics_by_hand(metric, at_5, at_1):
    np.testing.assert_allclose(metric(*BY_HAND, k=5), at_5)
    np.testing.assert_allclose(metric(*TOPS, k=1), at_1)


@pytest.mark.parametrize("metric", ALL_METRICS)
def test_ranks_beyond_the_cut_off_may_be_any_larger_number(metric):
    exact = metric(*csr([1, 40, 77], [12]), k=10)
    np.testing.assert_array_equal(exact, metric(*csr([1, 11, 11], [10**12]), k=10))


def test_agrees_with_ir_measures_on_random_rankings():
    generator = np.random.default_rng(3)
    rows, qrels, run = [], [], []
    for left in range(60):
        ranking = generator.permutation(200)
        # One to 40 relevant items, some of them (>= 150) not retrieved at all.
        relevant = generator.choice(200, size=generator.integers(1, 41), replace=False)
        rank_of = {item: rank for rank, item in enumerate(ranking, start=1)}
        rows.append(sorted(rank_of[item] for item in relevant))
        qrels += [ir_measures.Qrel(str(left), str(item), 1) for item in relevant]
        run += [ir_measures.ScoredDoc(str(left), str(item), -r) for r, item in enumerate(ranking[:150])]
    ranking = csr(*rows)
    ours = {
        "AP@10": metrics.average_precision_relevant(*ranking, k=10),
        "nDCG@10": metrics.ndcg(*ranking, k=10),
        "R@10": metrics.recall(*ranking, k=10),
        "R@100": metrics.recall(*ranking, k=100),
    }
    measures = [ir_measures.parse_measure(name) for name in ours]
    theirs = {name: np.full(60, np.nan) for name in ours}
    for value in ir_measures.iter_calc(measures, qrels, run):
        theirs[str(value.measure)][int(value.query_id)] = value.value
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], err_msg=name)

    # The library has no denominator min(k, R); it differs from R by a known factor.
    sizes = np.diff(ranking[1])
    expected = theirs["AP@10"] * sizes / np.minimum(10, sizes)
    np.testing.assert_allclose(metrics.average_precision(*ranking, k=10), expected)


@pytest.mark.parametrize(
    ("rows", "k", "message"), [([[1], []], 10, "left item 1 has no relevant"), ([[1]], 0, "at least 1")]
)
def test_a_ranking_without_a_metric_is_refused(rows, k, message):
    for metric in ALL_METRICS:
        with pytest.raises(ValueError, match=message):
            metric(*csr(*rows), k=k)


def test_bootstrap_is_deterministic_and_follows_its_seed():
    values = np.random.default_rng(0).random(500)
    assert metrics.bootstrap_interval(values, seed=1) == metrics.bootstrap_interval(values, seed=1)
    assert metrics.bootstrap_interval(values, seed=1) != metrics.bootstrap_interval(values, seed=2)


@pytest.mark.parametrize(("level", "deviations"), [(0.95, 1.96), (0.5, 0.6745)])
def test_bootstrap_has_the_width_that_the_central_limit_theorem_gives(level, deviations):
    """On both sides: the normal distribution's quantiles leave half of what is not covered on each."""
    values = np.random.default_rng(0).choice([0, 0.1, 0.5, 1], size=4000)
    low, high = metrics.bootstrap_interval(values, seed=0, resamples=4000, level=level)
    error = deviations * values.std() / math.sqrt(len(values))
    assert low == pytest.approx(values.mean() - error, abs=0.1 * error)
    assert high == pytest.approx(values.mean() + error, abs=0.1 * error)


def test_bootstrap_covers_the_true_mean_as_often_as_it_says():
    generator = np.random.default_rng(5)
    covered = 0
    for seed in range(200):
        values = generator.beta(0.5, 2, size=200)
        low, high = metrics.bootstrap_interval(values, seed, resamples=300, level=0.9)
        covered += low <= 0.2 <= high  # the mean of Beta(1/2, 2)
    # 200 trials at 90 %: a standard deviation of 4.2; the bounds are four of them.
    assert 163 <= covered <= 197
