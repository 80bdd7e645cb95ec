"""Ranks against the literal twin, rankings worked by hand, and the promises of the protocol."""

import itertools

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gramrun.base.errors import RunError
from gramrun.evaluation import metrics, ranking
from gramrun.evaluation import top_k as negatives
from gramrun.evaluation.ranking import ItemSets


def sets(*rows):
    """Sets of right items, one for each left row, in CSR form."""
    pairs = [(i, item) for i, row in enumerate(rows) for item in row]
    return ItemSets.from_pairs(*np.array(pairs, dtype=np.int64).reshape(-1, 2).T, row_count=len(rows))


def rank(left, right, *task, **options):
    return ranking.rank_scored(ranking.InnerProducts(left, right), *task, **options)


def ids(*items):
    return np.array(items, dtype=np.int64)


def column(*values):
    """Embeddings of one dimension: with u = 1, an item's embedding is its score."""
    return torch.tensor(values, dtype=torch.float32)[:, None]


def random_task(seed, left=40, items=300, dim=6, integer=False):
    """Embeddings and item sets; integer embeddings make most scores tie exactly."""
    generator = np.random.default_rng(seed)
    shape = (left + items, dim)
    table = generator.integers(-1, 2, shape) if integer else generator.normal(size=shape)
    embeddings = torch.tensor(table, dtype=torch.float32)
    relevant = [set(generator.choice(items, generator.integers(1, 9)).tolist()) for _ in range(left)]
    excluded = [set(generator.choice(items, generator.integers(0, 30)).tolist()) for _ in range(left)]
    candidates = np.flatnonzero(generator.random(items) < 0.6)
    return embeddings[:left], embeddings[left:], candidates, relevant, excluded


@pytest.fixture
def restore_settings():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")


def test_ranks_by_hand():
    right = column(5, 4, 3, 2, 1, 9)
    # Item 5 is not a candidate, item 0 is excluded: 5 (9) > 1 (4) > 2 (3) > 3 (2) > 4 (1).
    ranks, offsets = rank(column(1), right, ids(0, 1, 2, 3, 4), relevant=sets({3, 5}), excluded=sets({0}))
    assert ranks.tolist() == [1, 4]
    assert offsets.tolist() == [0, 2]


@pytest.mark.parametrize(("relevant", "expected"), [({1}, [3]), ({0, 1, 2}, [1, 2, 3])])
def test_ties_stand_before_the_relevant_item_and_are_counted_once(relevant, expected):
    ranks, _ = rank(column(1), column(2, 2, 2, 1), ids(0, 1, 2, 3), sets(relevant))
    assert ranks.tolist() == expected


def test_an_item_that_is_relevant_and_excluded_is_relevant():
    arguments = column(1), column(3, 2, 1), ids(0, 1, 2), sets({1})
    assert rank(*arguments, excluded=sets({1}))[0].tolist() == [2]


def test_rows_without_relevant_items_and_no_rows_at_all():
    ranks, offsets = rank(column(1, 1), column(1, 2), ids(0, 1), sets(set(), {0}))
    assert (ranks.tolist(), offsets.tolist()) == ([2], [0, 0, 1])
    ranks, offsets = rank(column(), column(1, 2), ids(0, 1), sets())
    assert (ranks.tolist(), offsets.tolist()) == ([], [0])


def capped(ranks, depth):
    """What is promised of ranks: those beyond the depth are only that."""
    return [min(rank, depth + 1) for rank in ranks]


# Of the greatest |u| |v|: around where float32 products go subnormal, and where they may overflow.
SCALES = {"usual": 10.0, "tiny": 1e-36, "subnormal": 1e-42, "large": 1e38, "huge": 2.5e38}


@given(
    kind=st.sampled_from(["random", "tied", "nearly tied", "duplicated", "zero", "constant", "long-tailed"]),
    scale=st.sampled_from(sorted(SCALES)),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    dim=st.sampled_from([1, 3, 64, 200]),
    relevant=st.sampled_from(["few", "many", "best", "all"]),
    depth=st.sampled_from([1, 3, 10]),
    unbalanced=st.booleans(),
    margin=st.sampled_from([0, 8]),
    block=st.sampled_from([700, 65_536]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_agrees_with_the_float64_twin(
    kind, scale, dtype, dim, relevant, depth, unbalanced, margin, block, seed
):
    """All embeddings that could mislead a float32 product, at sizes where groups and margins matter."""
    random = np.random.default_rng(seed)
    left, items = random.integers(1, 9), random.choice([5, 300, 1900])
    u, v = random.normal(size=(left, dim)), random.normal(size=(items, dim))
    if kind == "tied":
        u, v = u.round(), v.round()
    elif kind == "nearly tied":  # closer to one another than float32 products are to their scores
        v = v[:1] * (1 + 1e-7 * random.integers(0, 9, (items, 1)))
    elif kind == "duplicated":
        v = v[random.integers(0, 1 + items // 3, items)]
    elif kind == "zero":
        v[random.random(items) < 0.7] = 0
        u[0] = 0
    elif kind == "constant":
        v[:] = v[0]
    elif kind == "long-tailed":
        v *= (1 / random.uniform(1e-4, 1, items))[:, None]
    if dtype != torch.float16:  # which has no such numbers
        norms = [np.linalg.norm(x, axis=1).max() or 1 for x in (u, v)]
        u, v = (x * np.sqrt(SCALES[scale]) / norm for x, norm in zip((u, v), norms, strict=True))
        if unbalanced:
            factor = 1e45 if dtype == torch.float64 else 1e15  # beyond float32, and within it
            u, v = u * factor, v / factor
    u, v = (torch.tensor(x).to(dtype) for x in (u, v))
    candidates = np.flatnonzero(random.random(items) < random.choice([0.1, 0.9, 1]))
    best = (u.double() @ v.double().T).topk(min(12, items)).indices.numpy()
    chosen = []
    for row in range(left):
        drawn = random.choice(items, min(4 if relevant == "few" else 100, items), replace=False)
        chosen.append({"best": best[row, ::2], "all": np.arange(items)}.get(relevant, drawn))
    excluded = [random.choice(items, items // 4, replace=False) for _ in range(left)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(negatives, "_MARGIN", margin)
        patch.setattr(negatives, "CANDIDATE_BLOCK", block)
        ranks, offsets = rank(u, v, candidates, sets(*chosen), sets(*excluded), depth, 3)
    expected = reference.rank_in_float64(u, v, candidates, chosen, excluded)
    for row, want in enumerate(expected):
        assert capped(ranks[offsets[row] : offsets[row + 1]], depth) == capped(want, depth)


@pytest.mark.usefixtures("restore_settings")
def test_neither_chunks_nor_threads_change_the_ranks():
    # Wide real embeddings with every item three times over: each score has two exact ties, and kernels for
    # different shapes and thread counts do not sum 96 products in one order.
    left, right, _, relevant, excluded = random_task(2, left=24, items=500, dim=96)
    right = right.repeat(3, 1)
    arguments = left, right, np.arange(len(right)), sets(*relevant), sets(*excluded)
    expected, _ = rank(*arguments, depth=1500)
    for chunk_rows, threads in itertools.product((1, 7, 24), (1, 2)):
        torch.set_num_threads(threads)
        ranks, _ = rank(*arguments, depth=1500, chunk_rows=chunk_rows)
        np.testing.assert_array_equal(ranks, expected)


@pytest.mark.usefixtures("restore_settings")
def test_fast_products_of_training_do_not_reach_the_ranks():
    """TF32 and bfloat16 products are thousands of times further from their scores than the bound allows."""
    left, right, candidates, relevant, _ = random_task(0)
    for chosen in ("medium", "high"):
        torch.set_float32_matmul_precision(chosen)
        seen = []
        rank(
            left, right, candidates, sets(*relevant),
            progress=lambda _, seen=seen: seen.append(torch.get_float32_matmul_precision()),
        )  # fmt: skip
        assert seen == ["highest"]
        assert torch.get_float32_matmul_precision() == chosen


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.usefixtures("restore_settings")
def test_a_gpu_ranks_as_the_processor_does():
    left, right, candidates, relevant, excluded = random_task(5, left=300, items=9000, dim=64)
    arguments = candidates, sets(*relevant), sets(*excluded), 20
    torch.set_float32_matmul_precision("high")  # TF32
    ranks, _ = rank(left.cuda(), right.cuda(), *arguments)
    np.testing.assert_array_equal(ranks, rank(left, right, *arguments)[0])


def test_a_constant_predictor_scores_no_more_than_chance():
    negatives, relevant, k = 6, 2, 5
    # Chance, exactly: every placement of the relevant items among all positions is equally likely.
    placements = itertools.combinations(range(1, negatives + relevant + 1), relevant)
    chance_ranks = np.array(list(placements), dtype=np.int64)
    chance_offsets = np.arange(0, chance_ranks.size + 1, relevant)

    # The same v for every item; the scores of a left row tie, though its sum has to be rounded.
    u = torch.randn(50, 33, generator=torch.Generator().manual_seed(0))
    v = torch.randn(1, 33, generator=torch.Generator().manual_seed(1)).expand(negatives + relevant, -1)
    ranks, offsets = rank(u, v, np.arange(len(v)), sets(*[{0, 3}] * len(u)))
    assert (ranks.reshape(-1, relevant) == [negatives + 1, negatives + 2]).all()
    for metric in (metrics.average_precision, metrics.recall, metrics.ndcg):
        assert metric(ranks, offsets, k).max() <= metric(chance_ranks.ravel(), chance_offsets, k).mean()


@pytest.mark.parametrize("bad", [float("nan"), 3e38])
@pytest.mark.parametrize("side", [0, 1])
def test_embeddings_without_an_order_are_refused(bad, side):
    embeddings = [column(1, 2), column(10, 20, 30)]
    embeddings[side][1] = bad
    with pytest.raises(RunError, match="NaN or overflow"):
        rank(*embeddings, ids(0, 1, 2), sets({0}, {1}))


def test_candidates_are_distinct_sorted_and_seeded():
    drawn = ranking.sample_candidates(10_000, 500, seed=3)
    assert drawn.dtype == np.int64
    assert len(drawn) == 500
    assert (np.diff(drawn) > 0).all()
    assert drawn[0] >= 0
    assert drawn[-1] < 10_000
    np.testing.assert_array_equal(drawn, ranking.sample_candidates(10_000, 500, seed=3))
    others = ranking.sample_candidates(10_000, 500, seed=4)
    assert ranking.candidate_hash(drawn) != ranking.candidate_hash(others)


def test_candidates_are_uniform():
    counts = np.zeros(20)
    for seed in range(2000):
        counts[ranking.sample_candidates(20, 5, seed)] += 1
    # Each item is drawn with probability 1/4: mean 500, standard deviation 19; the bound is five of them.
    assert abs(counts - 500).max() < 97


def test_candidate_hash_is_the_sha256_of_little_endian_int64():
    # printf '\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0' | sha256sum
    expected = "0c730b69905c5ef7a4ca5269f72365400bde2dd2c04eaf9bbb3d1c4a265a0131"
    assert ranking.candidate_hash(ids(1, 2)) == expected
