"""The gradient identity and Propositions 1 and 6: surrogates against autograd of the literal double sum.

g^P = sum_x sum_y w_x w_y (⟨u_x, v_y⟩ − ⟨q_x, r_y⟩)²; without a prior q = r = 0.
"""

import itertools

import numpy as np
import pytest
import torch

from gramrun.gramian import make_estimator
from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.population import make_population
from gramrun.gramian.surrogate import GravitySide, gravity, gravity_surrogate

LEFT_PAIRS, RIGHT_PAIRS = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 2, 2, 3])
LEFT_ITEMS, RIGHT_ITEMS = 3, 4  # right item 1 has no pair
PAIRS, DIM, RANK = 4, 3, 2
GAMMAS = [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0), (1.0, 0.0), (0.0, 0.5)]


class Corpus:
    """Two tiny non-linear towers that share a parameter, their populations, and a prior (of zeros where absent)."""

    def __init__(self, seed, gammas, prior):
        generator = torch.Generator().manual_seed(seed)

        def parameter(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.double).requires_grad_()

        left, right, shared = parameter(LEFT_ITEMS, 4), parameter(RIGHT_ITEMS, 4), parameter(4, DIM)
        self.parameters = [left, right, shared]
        self.u = torch.tanh(left) @ shared
        self.v = torch.tanh(right * 2) @ shared
        self.gammas, self.prior = gammas, prior
        self.q, self.r = (
            parameter(n, RANK).detach() * (1 if prior else 0) for n in (LEFT_ITEMS, RIGHT_ITEMS)
        )
        self.populations = [
            make_population(column, n, gamma)
            for column, n, gamma in zip(
                (LEFT_PAIRS, RIGHT_PAIRS), (LEFT_ITEMS, RIGHT_ITEMS), gammas, strict=True
            )
        ]

    def weights(self, side):
        """f^γ / sum f^γ from the list of pairs."""
        column, items = ((LEFT_PAIRS, LEFT_ITEMS), (RIGHT_PAIRS, RIGHT_ITEMS))[side]
        counts = [column.tolist().count(item) for item in range(items)]
        powers = [count ** self.gammas[side] if count else 0.0 for count in counts]
        return [power / sum(powers) for power in powers]

    def literal(self):
        """g^P by its double sum."""
        return sum(
            a * b * (self.u[x] @ self.v[y] - self.q[x] @ self.r[y]) ** 2
            for x, a in enumerate(self.weights(0))
            for y, b in enumerate(self.weights(1))
        )

    def batch(self, side, items, pairs=None, importance=None):
        rows, companions = ((self.u, self.q), (self.v, self.r))[side]
        companions = companions[items] if self.prior else None
        return GramianBatch(items, rows.detach()[items], companions, pairs, importance)

    def exact(self, side):
        items = torch.arange((LEFT_ITEMS, RIGHT_ITEMS)[side])
        return weighted_moments([self.batch(side, items)], torch.tensor(self.weights(side)).double())

    def surrogate(self, pair, left_moments, right_moments):
        """ĝ_i of one pair, or of several."""
        pair = torch.as_tensor(pair).reshape(-1)
        x, y = LEFT_PAIRS[pair], RIGHT_PAIRS[pair]
        r = [
            None if p.importance is None else p.importance.double()[items]
            for p, items in zip(self.populations, (x, y), strict=True)
        ]
        q, s = (self.q[x], self.r[y]) if self.prior else (None, None)
        left, right = GravitySide(self.u[x], r[0], q), GravitySide(self.v[y], r[1], s)
        moments = [left_moments, right_moments]
        gramians, crosses = [m[:, :DIM] for m in moments], [m[:, DIM:] for m in moments]
        return gravity_surrogate(left, right, *gramians, *crosses)

    def gradient(self, scalar):
        return torch.autograd.grad(scalar, self.parameters, retain_graph=True)


def close(got, expected):
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=2e-6)  # weights are float32


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("gammas", GAMMAS)
def test_gradient_identity(gammas, prior):
    """With exact moments, the mean over i of ∇ĝ_i is autograd's ∇g: no ½, no factor n.

    Its value, though, is 2 (g − ⟨G_q, G_r⟩): each factor of ⟨G_u, G_v⟩ − 2⟨H_u, H_v⟩ is counted once for each
    of the two that move, and the constant not at all.
    """
    corpus = Corpus(0, gammas, prior)
    moments = corpus.exact(0), corpus.exact(1)
    mean = sum(corpus.surrogate(i, *moments) for i in range(PAIRS)) / PAIRS
    close(corpus.gradient(mean), corpus.gradient(corpus.literal()))
    constant = sum(
        a * b * float(corpus.q[x] @ corpus.r[y]) ** 2
        for x, a in enumerate(corpus.weights(0))
        for y, b in enumerate(corpus.weights(1))
    )
    g = float(corpus.literal().detach())
    assert float(mean.detach()) == pytest.approx(2 * (g - constant), rel=1e-5)
    assert (constant > 0.01) == prior
    if not prior:
        assert float(gravity(*moments)) == pytest.approx(g, rel=1e-6)


@pytest.mark.parametrize("gammas", GAMMAS[:3])
def test_a_batch_s_surrogate_is_the_mean_of_its_members(gammas):
    corpus = Corpus(2, gammas, prior=True)
    moments = corpus.exact(0), corpus.exact(1)
    batch = [0, 3, 3, 1, 2]
    members = [corpus.surrogate(i, *moments) for i in batch]
    torch.testing.assert_close(corpus.surrogate(batch, *moments), sum(members) / len(batch))


def draws(corpus, side, size):
    """(probability, batch) of every Gramian batch of `size` items ~ w."""
    weights = corpus.weights(side)
    for items in itertools.product([x for x, w in enumerate(weights) if w], repeat=size):
        yield float(np.prod([weights[x] for x in items])), corpus.batch(side, torch.tensor(items))


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("gammas", GAMMAS)
def test_propositions_1_and_6_over_every_batch_and_every_pair(gammas, prior):
    """Sampled moments from B, the gradient from an independent uniform i: the mean over all of them is ∇g^P."""
    corpus = Corpus(1, gammas, prior)
    expected = corpus.gradient(corpus.literal())
    observed = []
    for side in (0, 1):
        observed.append([])
        for probability, batch in draws(corpus, side, 2):
            estimator = make_estimator(
                "sampling",
                embedding_dim=DIM,
                population=corpus.populations[side],
                companion_dim=RANK if prior else 0,
            ).double()
            estimator.observe(batch)
            observed[side].append((probability, estimator.moments))
    mean = sum(
        p * q * corpus.surrogate(i, left, right) / PAIRS
        for (p, left), (q, right) in itertools.product(*observed)
        for i in range(PAIRS)
    )
    close(corpus.gradient(mean), expected)


@pytest.mark.parametrize("gamma", [1.0, 0.5, 0.0])
def test_the_previous_batch_gives_the_gravity_of_distinct_pairs(gamma):
    """With moments from the epoch's previous batch, E ∇ĝ is that of (1/n(n−1)) sum_{i≠j} r_i r'_j (...)².

    What E[Ĝ | i] = (n G − term_i)/(n − 1) does to the gradient: i's own term is missing from the double sum, the
    rest weighs n/(n−1) times as much. (Embeddings are held still; in training the previous batch is one step old.)
    """
    corpus = Corpus(3, (gamma, gamma), prior=True)
    importance = [
        torch.ones(n).double() if p.importance is None else p.importance.double()
        for p, n in zip(corpus.populations, (LEFT_ITEMS, RIGHT_ITEMS), strict=True)
    ]
    a, b = (r[column] for r, column in zip(importance, (LEFT_PAIRS, RIGHT_PAIRS), strict=True))
    u, v, q, r = (
        t[c]
        for t, c in (
            (corpus.u, LEFT_PAIRS),
            (corpus.v, RIGHT_PAIRS),
            (corpus.q, LEFT_PAIRS),
            (corpus.r, RIGHT_PAIRS),
        )
    )
    distinct = sum(
        a[i] * b[j] * (u[i] @ v[j] - q[i] @ r[j]) ** 2 for i in range(PAIRS) for j in range(PAIRS) if i != j
    ) / (PAIRS * (PAIRS - 1))
    orders = list(itertools.permutations(range(PAIRS)))
    mean = 0
    for order in orders:
        previous = torch.tensor(order[:2])
        moments = []
        for side, column in enumerate((LEFT_PAIRS, RIGHT_PAIRS)):
            estimator = make_estimator(
                "sampling", embedding_dim=DIM, population=corpus.populations[side], companion_dim=RANK
            ).double()
            items = column[previous]
            estimator.observe(corpus.batch(side, items, previous, importance[side][items]))
            moments.append(estimator.moments)
        mean = mean + corpus.surrogate(order[2:], *moments) / len(orders)
    close(corpus.gradient(mean), corpus.gradient(distinct))


@pytest.mark.parametrize("gammas", GAMMAS[:3])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_equation_15_over_every_batch(size, gammas):
    """Sampling on the gradient's own batch: the surrogate has the gradient of equation 14 through both sums.

    Over all batches drawn with replacement, its mean is ∇[(1 − 1/B) g + (1/B) mean_i r_i s_i ⟨u_i, v_i⟩²]: the
    pairs i = j make it biased, which is why Algorithms 1 and 2 draw B and B' separately.
    """
    corpus = Corpus(1, gammas, prior=False)
    rows = corpus.u[LEFT_PAIRS], corpus.v[RIGHT_PAIRS]
    columns = LEFT_PAIRS, RIGHT_PAIRS
    r, s = (
        torch.ones(PAIRS).double() if p.importance is None else p.importance.double()[column]
        for p, column in zip(corpus.populations, columns, strict=True)
    )
    squares = r[:, None] * s * (rows[0] @ rows[1].T).square()  # r_i s_j ⟨u_i, v_j⟩²
    mean = [torch.zeros_like(p) for p in corpus.parameters]
    for batch in itertools.product(range(PAIRS), repeat=size):
        pairs = torch.tensor(batch)
        moments = []
        for side, (column, importance) in enumerate(zip(columns, (r, s), strict=True)):
            estimator = make_estimator("sampling", embedding_dim=DIM, population=corpus.populations[side])
            estimator.double().observe(corpus.batch(side, column[pairs], pairs, importance[pairs]))
            moments.append(estimator.moments)
        gradient = corpus.gradient(corpus.surrogate(pairs, *moments))
        close(gradient, corpus.gradient(squares[pairs][:, pairs].mean()))
        mean = [a + b / PAIRS**size for a, b in zip(mean, gradient, strict=True)]
    close(mean, corpus.gradient((1 - 1 / size) * corpus.literal() + squares.diagonal().mean() / size))


def test_estimates_are_constants():
    """No gradient reaches the moments, whatever graph they come with."""
    corpus = Corpus(4, (1.0, 1.0), prior=True)
    moments = [corpus.exact(side).requires_grad_() for side in (0, 1)]
    gradients = torch.autograd.grad(corpus.surrogate([0, 1], *moments), moments, allow_unused=True)
    assert gradients == (None, None)
