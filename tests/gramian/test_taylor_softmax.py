"""The Taylor softmax equals its literal sums; the bias of the logarithm of a noisy partition function."""

import itertools
import math

import pytest
import torch

from gramrun.gramian import taylor_softmax
from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.population import make_population
from gramrun.gramian.surrogate import GravitySide

LEFT_PAIRS, RIGHT_PAIRS = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 2, 2, 3, 0])
LEFT_ITEMS, RIGHT_ITEMS = 3, 4  # right item 1 has no pair
PAIRS, DIM = 5, 3
GAMMAS = [1.0, 0.5, 0.0]


def towers(seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    parameters = [
        torch.randn(*shape, generator=generator, dtype=torch.double).requires_grad_()
        for shape in ((LEFT_ITEMS, 4), (RIGHT_ITEMS, 4), (4, DIM))
    ]
    left, right, shared = parameters
    return parameters, scale * torch.tanh(left) @ shared, scale * torch.tanh(right * 2) @ shared


def weights(gamma):
    counts = [RIGHT_PAIRS.tolist().count(y) for y in range(RIGHT_ITEMS)]
    powers = [count**gamma if count else 0.0 for count in counts]
    return [power / sum(powers) for power in powers]


def h(score):
    return 1 + score + score**2 / 2


def literal_partition(u, v, gamma):
    """Z(u) = sum_y w_y h(⟨u, v_y⟩), item by item."""
    return sum(w * h(u @ v[y]) for y, w in enumerate(weights(gamma)))


def moments(rows, companions, item_weights):
    """(mean, Gramian) over items."""
    items = torch.arange(len(rows))
    both = weighted_moments([GramianBatch(items, rows.detach(), companions.detach())], item_weights.double())
    return both[:, DIM], both[:, :DIM]


def right_statistics(v, gamma):
    return moments(v, torch.ones(len(v), 1).double(), torch.tensor(weights(gamma), dtype=torch.double))


def test_h_is_the_second_order_expansion_and_at_least_a_half():
    scores = torch.linspace(-5, 5, 101, dtype=torch.double)
    values = taylor_softmax.taylor_exponential(scores)
    torch.testing.assert_close(values, ((1 + scores) ** 2 + 1) / 2)
    assert values.min() == taylor_softmax.taylor_exponential(torch.tensor(-1.0)) == 0.5
    # Its first three derivatives at 0 are exp's, exp's and 0.
    zero = torch.zeros((), dtype=torch.double, requires_grad=True)
    value = taylor_softmax.taylor_exponential(zero)
    (first,) = torch.autograd.grad(value, zero, create_graph=True)
    (second,) = torch.autograd.grad(first, zero)
    assert (float(value.detach()), float(first.detach()), float(second)) == (1, 1, 1)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_partition_function_is_its_literal_sum(gamma):
    _, u, v = towers(0)
    got = taylor_softmax.partition(u, *right_statistics(v, gamma))
    expected = torch.stack([literal_partition(row, v, gamma) for row in u])
    torch.testing.assert_close(got.detach(), expected.detach())
    assert expected.min() >= 0.5


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_surrogate_s_gradient_is_that_of_the_penalty(gamma):
    """With exact statistics, the mean over pairs of its gradient is autograd's of (1/n) sum_i log Z(u_i)."""
    parameters, u, v = towers(1)
    expected = torch.autograd.grad(
        sum(literal_partition(u[x], v, gamma).log() for x in LEFT_PAIRS) / PAIRS,
        parameters,
        retain_graph=True,
    )
    right_mean, right_gramian = right_statistics(v, gamma)
    rows, scale = taylor_softmax.left_rows(u, right_mean, right_gramian)
    frequency = torch.bincount(LEFT_PAIRS).double() / PAIRS
    left_mean, left_gramian = moments(rows, scale, frequency)
    z = [literal_partition(row, v, gamma) for row in u]
    literal_a = sum(u[x] / z[x] for x in LEFT_PAIRS) / PAIRS
    literal_b = sum(torch.outer(u[x], u[x]) / z[x] for x in LEFT_PAIRS) / PAIRS
    torch.testing.assert_close(left_mean, literal_a.detach())
    torch.testing.assert_close(left_gramian, literal_b.detach())
    importance = make_population(RIGHT_PAIRS, RIGHT_ITEMS, gamma).importance
    surrogate = 0
    for i in range(PAIRS):
        x, y = LEFT_PAIRS[[i]], RIGHT_PAIRS[[i]]
        right = GravitySide(v[y], None if importance is None else importance.double()[y])
        term = taylor_softmax.partition_surrogate(
            GravitySide(u[x]), right, left_gramian, right_gramian, left_mean, right_mean
        )
        surrogate = surrogate + term / PAIRS
    whole = taylor_softmax.partition_surrogate(
        GravitySide(u[LEFT_PAIRS]),
        GravitySide(v[RIGHT_PAIRS], None if importance is None else importance.double()[RIGHT_PAIRS]),
        left_gramian,
        right_gramian,
        left_mean,
        right_mean,
    )
    torch.testing.assert_close(whole, surrogate)  # of a batch: the mean over its pairs
    for got, want in zip(torch.autograd.grad(surrogate, parameters), expected, strict=True):
        torch.testing.assert_close(got, want, atol=2e-7, rtol=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_no_loss_is_below_the_log_of_its_item_s_weight(gamma):
    """h/Z is a probability ratio: w_y h(o_y) ≤ Z, so −log h + log Z ≥ log w_y; near it where one item has it all."""
    _, u, v = towers(2, scale=3.0)
    z = taylor_softmax.partition(u, *right_statistics(v, gamma)).detach()
    shares = torch.zeros(LEFT_ITEMS).double()
    for y, w in enumerate(weights(gamma)):
        share = w * h((u @ v[y]).detach()) / z
        assert share.max() <= 1
        shares += share
    torch.testing.assert_close(shares, torch.ones(LEFT_ITEMS).double())
    one = torch.full((1, 1), 1e4).double()
    alone = taylor_softmax.observed_loss(one, one)  # against an item of weight 1/4 and others at the origin
    z = taylor_softmax.partition(one, torch.tensor([2.5e3]).double(), torch.tensor([[2.5e7]]).double())
    assert float(alone + z.log()) == pytest.approx(math.log(1 / 4), abs=1e-6)


def test_observed_loss_by_hand():
    """Scores 2 and −1: −(log 5 + log ½)/2."""
    u, v = torch.tensor([[1.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 1.0], [-1.0, 3.0]])
    expected = -(math.log(5) + math.log(0.5)) / 2
    assert float(taylor_softmax.observed_loss(u, v)) == pytest.approx(expected)


def enumerated_bias(u, v, gamma, size):
    """(E log Ẑ − log Z, Var Ẑ / (2 Z²), third-order remainder's size) over every sampled batch."""
    z = float(literal_partition(u, v, gamma))
    w = weights(gamma)
    total = variance = third = 0.0
    for batch in itertools.product([y for y in range(RIGHT_ITEMS) if w[y]], repeat=size):
        p = math.prod(w[y] for y in batch)
        rows = v[list(batch)]
        estimate = float(taylor_softmax.partition(u[None], rows.mean(0), rows.T @ rows / size)[0])
        total += p * math.log(estimate)
        variance += p * (estimate - z) ** 2
        third += p * abs(estimate - z) ** 3
    return total - math.log(z), variance / (2 * z**2), third / z**3


@pytest.mark.parametrize("gamma", [1.0, 0.0])
def test_the_bias_of_log_z_is_minus_half_its_relative_variance(gamma):
    """E log Ẑ − log Z = −Var Ẑ/(2Z²) up to third order, exactly 1/|B| in its main term, by enumeration."""
    u, v = (t.detach() for t in towers(3, scale=0.1)[1:])
    found = {size: enumerated_bias(u[0], v, gamma, size) for size in (1, 2, 3)}
    for size, (bias, half_variance, third) in found.items():
        assert bias < 0
        assert half_variance == pytest.approx(found[1][1] / size)
        assert abs(bias + half_variance) < third
        assert third < 0.5 * half_variance  # so that the line above says something
    assert found[3][0] / found[1][0] == pytest.approx(1 / 3, rel=0.1)


@pytest.mark.parametrize("gamma", [1.0, 0.0])
@pytest.mark.parametrize("size", [1, 2])
def test_the_bias_of_the_gradient_is_of_the_order_of_the_variance(size, gamma):
    """E[∇Ẑ/Ẑ] = ∇Z/Z − Cov(∇Ẑ, Ẑ)/Z² + ∇Z Var Ẑ/Z³ + ..., the rest a fraction of these two."""
    u, v = (t.detach() for t in towers(3, scale=0.1)[1:])
    w = weights(gamma)
    z, slope = (
        literal_partition(u[0], v, gamma),
        sum(w[y] * (1 + u[0] @ v[y]) * v[y] for y in range(RIGHT_ITEMS)),
    )
    total, covariance, variance = torch.zeros(DIM).double(), torch.zeros(DIM).double(), 0.0
    for batch in itertools.product([y for y in range(RIGHT_ITEMS) if w[y]], repeat=size):
        p = math.prod(w[y] for y in batch)
        rows, point = v[list(batch)], u[:1].clone().requires_grad_()
        estimate = taylor_softmax.partition(point, rows.mean(0), rows.T @ rows / size)
        (gradient,) = torch.autograd.grad(estimate.sum(), point, retain_graph=True)
        (of_log,) = torch.autograd.grad(estimate.log().sum(), point)
        total += p * of_log[0]
        covariance += p * (gradient[0] - slope) * (estimate.detach() - z)
        variance += p * float((estimate.detach() - z) ** 2)
    bias = total - slope / z
    predicted = -covariance / z**2 + slope * variance / z**3
    assert torch.linalg.norm(bias - predicted) < 0.1 * torch.linalg.norm(predicted)


def test_estimates_below_a_half_are_clamped():
    """Statistics that no sampled batch has give Z = ½, no gradient and no NaN."""
    u = torch.tensor([[1.0, 0.0], [0.1, 0.0]], requires_grad=True)
    z = taylor_softmax.partition(u, torch.tensor([-4.0, 0.0]), torch.zeros(2, 2))
    assert z.tolist() == pytest.approx([0.5, 0.6])
    (gradient,) = torch.autograd.grad(z.log().sum(), u)
    assert gradient[0].tolist() == [0, 0]
    assert gradient[1, 0] == pytest.approx(-4 / 0.6)
    rows, scale = taylor_softmax.left_rows(u, torch.tensor([-4.0, 0.0]), torch.zeros(2, 2))
    torch.testing.assert_close(scale[:, 0], torch.tensor([0.5, 0.6]).rsqrt())
    torch.testing.assert_close(rows, u * scale)
