"""Priors against their definitions: expectations by enumeration, the SVD by numpy's dense one, files by damage."""

import io
import itertools
import zipfile
from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import save_prior
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import linalg

from gramrun.base.errors import InputError, RunError
from gramrun.gramian import low_rank_prior
from gramrun.gramian.low_rank_prior import LowRankPrior, load_prior, popularity_prior, svd_prior


def dense(prior):
    return prior.left.double() @ prior.right.double().T


def random_pairs(left_items=30, right_items=17, density=0.3, seed=0):
    """The distinct pairs of a random 0/1 matrix, and the matrix."""
    matrix = np.random.default_rng(seed).random((left_items, right_items)) < density
    left, right = (torch.from_numpy(index) for index in np.nonzero(matrix))
    return left, right, matrix.astype(float)


# Popularity


def test_popularity_is_the_expectation_over_every_way_to_join_the_ends():
    left_ends, right_ends = [0, 0, 1, 2], [0, 1, 1, 1]
    total = [[0, 0], [0, 0], [0, 0]]
    joins = list(itertools.permutations(right_ends))
    for join in joins:
        for x, y in zip(left_ends, join, strict=True):
            total[x][y] += 1
    expected = [[Fraction(count, len(joins)) for count in row] for row in total]
    prior = popularity_prior(torch.tensor([2, 1, 1]), torch.tensor([1, 3]))
    assert prior.rank == 1
    by_hand = [[Fraction(2, 4), Fraction(6, 4)], [Fraction(1, 4), Fraction(3, 4)]]
    assert expected == [*by_hand, by_hand[1]]
    np.testing.assert_allclose(dense(prior).numpy(), np.array(expected, dtype=float), rtol=1e-6)


# SVD


@pytest.mark.parametrize("shape", [(30, 17), (17, 30), (12, 12)])
@pytest.mark.parametrize("rank", [1, 4, 11])
def test_svd_is_the_truncated_dense_one(shape, rank):
    left, right, matrix = random_pairs(*shape)
    prior = svd_prior(left, right, *shape, rank, seed=0)
    u, sigma, vt = np.linalg.svd(matrix)
    best = (u[:, :rank] * sigma[:rank]) @ vt[:rank]
    p = dense(prior).numpy()
    np.testing.assert_allclose(p, best, atol=1e-5)
    # Eckart and Young: no matrix of this rank comes closer than the singular values that were left out.
    assert np.linalg.norm(matrix - p) == pytest.approx(np.sqrt((sigma[rank:] ** 2).sum()), rel=1e-5, abs=1e-5)
    for factor in (prior.left, prior.right):  # QᵀQ = RᵀR = Σ
        np.testing.assert_allclose((factor.T @ factor).numpy(), np.diag(sigma[:rank]), atol=1e-4)


def test_svd_takes_values():
    left, right, matrix = random_pairs()
    values = torch.from_numpy(np.random.default_rng(1).normal(size=len(left))).float()
    matrix[left, right] = values
    u, sigma, vt = np.linalg.svd(matrix)
    p = dense(svd_prior(left, right, 30, 17, 3, seed=0, values=values)).numpy()
    np.testing.assert_allclose(p, (u[:, :3] * sigma[:3]) @ vt[:3], atol=1e-5)


def test_signs_are_fixed_and_the_seed_does_not_matter():
    left, right, _ = random_pairs()
    first, second = (svd_prior(left, right, 30, 17, 5, seed=seed) for seed in (0, 1))
    torch.testing.assert_close(first.left, second.left, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(first.right, second.right, atol=1e-5, rtol=1e-5)
    peaks = first.left.abs().argmax(0)
    assert (first.left[peaks, torch.arange(5)] > 0).all()


def blocks():
    """Two users' tastes without overlap: σ = √60 twice, and nothing else, so the start soon spans it all."""
    left = torch.arange(20).repeat_interleave(6)
    return left, left % 2 * 6 + torch.arange(6).repeat(20)


def test_svd_is_deterministic_even_where_singular_vectors_are_not_unique():
    for left, right, shape in ((*random_pairs()[:2], (30, 17)), (*blocks(), (20, 12))):
        first, second = (svd_prior(left, right, *shape, 5, seed=7) for _ in range(2))
        assert torch.equal(first.left, second.left)
        assert torch.equal(first.right, second.right)


def test_a_matrix_of_lower_rank_is_met_exactly_and_the_rest_is_zero():
    left, right = blocks()
    prior = svd_prior(left, right, 20, 12, 5, seed=0)
    expected = np.zeros((20, 12))
    expected[left, right] = 1
    np.testing.assert_allclose(dense(prior).numpy(), expected, atol=1e-6)
    assert not prior.left[:, 2:].any()
    assert not prior.right[:, 2:].any()


def test_items_without_pairs_have_vectors_of_zeros():
    """The last of either side too, which the pairs alone do not tell of."""
    left, right, matrix = random_pairs()
    prior = svd_prior(left, right, 33, 19, 4, seed=0)
    assert (prior.left.shape, prior.right.shape) == ((33, 4), (19, 4))
    u, sigma, vt = np.linalg.svd(matrix)
    best = np.pad((u[:, :4] * sigma[:4]) @ vt[:4], ((0, 3), (0, 2)))
    np.testing.assert_allclose(dense(prior).numpy(), best, atol=1e-5)


def test_a_failing_iteration_is_one_line(monkeypatch):
    """With scipy's reason, which may have lines of its own."""
    left, right, _ = random_pairs()
    monkeypatch.setattr(
        low_rank_prior, "eigsh", lambda *a, **k: linalg.eigsh(*a, **{**k, "maxiter": 1, "ncv": 6})
    )
    with pytest.raises(RunError, match=r"the SVD of rank 5 did not converge \(.*No convergence.*\)"):
        svd_prior(left, right, 30, 17, 5, seed=0)

    def fail(*arguments, **options):
        raise linalg.ArpackNoConvergence("two\n lines", [], [])

    monkeypatch.setattr(low_rank_prior, "eigsh", fail)
    with pytest.raises(RunError, match="two lines"):
        svd_prior(left, right, 30, 17, 5, seed=0)


# Files


def test_integers_and_doubles_become_float32(tmp_path):
    np.savez(tmp_path / "p.npz", left=np.array([[1], [2], [3]]), right=np.full((4, 1), 0.5))
    prior = load_prior(tmp_path / "p.npz", 3, 4)
    assert dense(prior).tolist() == [[0.5] * 4, [1.0] * 4, [1.5] * 4]


LEFT, RIGHT = np.ones((3, 2)), np.ones((4, 2))
BAD_ARRAYS = {
    "no right": ({"left": LEFT}, "right"),
    "no left": ({"Q": LEFT, "right": RIGHT}, "left"),
    "objects": ({"left": LEFT.astype(object), "right": RIGHT}, "cannot be read"),
    "one dimension": ({"left": np.ones(3), "right": RIGHT}, "left is not a matrix"),
    "three dimensions": ({"left": LEFT, "right": RIGHT[None]}, "right is not a matrix"),
    "left items": ({"left": RIGHT, "right": RIGHT}, "left has shape (4, 2), but the corpus has 3 left items"),
    "right items": ({"left": LEFT, "right": LEFT}, "right has shape (3, 2), but the corpus has 4 right items"),
    "ranks": ({"left": LEFT, "right": RIGHT[:, :1]}, "left has rank 2 and right 1"),
    "rank 0": ({"left": LEFT[:, :0], "right": RIGHT[:, :0]}, "left has shape (3, 0)"),
    "NaN": ({"left": LEFT, "right": np.where(np.eye(4, 2), np.nan, 1)}, "right is not finite as float32 in row 0"),
    "infinity": ({"left": np.where(np.eye(3, 2), np.inf, 1), "right": RIGHT}, "left is not finite as float32 in row 0"),
    "beyond float32": ({"left": np.diag([1, 1e39, 1])[:, :2], "right": RIGHT}, "left is not finite as float32 in row 1"),
    "complex": ({"left": LEFT + 1j, "right": RIGHT}, "left is not a matrix of real numbers but complex128"),
    "text": ({"left": LEFT.astype(str), "right": RIGHT}, "left is not a matrix of real numbers"),
    "truth values": ({"left": LEFT, "right": RIGHT > 0}, "right is not a matrix of real numbers but bool"),
}  # fmt: skip


def refusal(path):
    with pytest.raises(InputError) as caught:
        load_prior(path, 3, 4)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value)


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_bad_arrays_are_refused_by_name(tmp_path, name):
    content, expected = BAD_ARRAYS[name]
    np.savez(tmp_path / "p.npz", **content)
    assert expected in refusal(tmp_path / "p.npz")


def single_array():
    stream = io.BytesIO()
    np.save(stream, LEFT)
    return stream.getvalue()


def npz(**members):
    """A zip of these members, whatever they hold."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


BAD_FILES = {
    "empty": b"",
    "text": b"left,right\n",
    "cut off": b"PK\x03\x04 and no more",
    "npy": single_array(),
    "no magic number": npz(left=b"no array", right=single_array()),
    "an open bracket": npz(left=single_array().replace(b"'shape': (3", b"'shape':((3"), right=single_array()),
    "another type": npz(left=single_array().replace(b"<f8", b"<q9"), right=single_array()),
    "a larger shape": npz(left=single_array().replace(b"(3, 2)", b"(9, 9)"), right=single_array()),
    "a shape beyond memory": npz(
        left=single_array().replace(b"(3, 2), }        ", b"(3, 2000000000), }"), right=single_array()
    ),
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_files_that_hold_no_arrays_are_refused(tmp_path, content):
    (tmp_path / "p.npz").write_bytes(content)
    refusal(tmp_path / "p.npz")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damage_is_refused_or_harmless(tmp_path_factory, data):
    """Flip any byte: one line, or the same prior where the byte does not count; never another error."""
    path = tmp_path_factory.mktemp("damage") / "p.npz"
    prior = LowRankPrior(torch.arange(6.0).reshape(3, 2), torch.arange(8.0).reshape(4, 2))
    save_prior(prior, path)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    error = ""
    try:
        loaded = load_prior(path, 3, 4)
    except InputError as refused:
        error, loaded = str(refused), prior
    assert "\n" not in error
    assert torch.equal(loaded.left, prior.left)
    assert torch.equal(loaded.right, prior.right)
