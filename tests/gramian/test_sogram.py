"""Proposition 5 and the unbiased starts: mean and variance over every sequence of draws, and each batch's weight."""

import itertools

import enumeration as corpus
import pytest
import torch
from enumeration import GAMMAS, WEIGHT_ERROR, advance, definition, embeddings, mean, observing

from gramrun.gramian import CacheOptions
from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.sampling import Sampling
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.gramian.sogram import SOGram

ALPHA = 0.3
Q = 1 - ALPHA
FORMS = {
    "zero start": {"schedule": AlphaSchedule(ALPHA)},
    "debiased": {"schedule": AlphaSchedule(ALPHA), "debias": True},
    "decaying": {"schedule": AlphaSchedule(ALPHA, "decaying")},
    "exact start": {"schedule": AlphaSchedule(ALPHA), "exact_start": True},
}


def make(form, gamma, **options):
    return corpus.make("sogram", gamma, **FORMS[form], **options)


def standing(estimator, gamma, theta, steps):
    """All states after each of the steps, where θ stands still and |B| = 1."""
    states = [(1.0, corpus.started(estimator, theta))]
    for _ in range(steps):
        states = advance(states, corpus.draws(gamma, 1), observing(theta))
        yield states


def sums(form, t):
    """(sum of the weights, sum of their squares) of t batches, by the formulas of the docstring."""
    bound = ALPHA / (2 - ALPHA)
    match form:
        case "zero start":
            return 1 - Q**t, bound * (1 - Q ** (2 * t))
        case "debiased":
            return 1.0, bound * (1 + Q**t) / (1 - Q**t)
        case "exact start":
            return 1.0, bound * (1 - Q ** (2 * t))
    squares = [1.0]  # decaying: 1/t as long as that is above α, then (1−α)² + α² a step
    for s in range(2, t + 1):
        squares.append(1 / s if 1 / s >= ALPHA else Q**2 * squares[-1] + ALPHA**2)
    return 1.0, squares[-1]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("form", FORMS)
def test_mean_and_variance_on_a_standing_trajectory(form, gamma):
    """E Ĝ(t) = c_t G and E‖Ĝ − c_t G‖² = σ² sum of the squared weights, at every t."""
    theta = embeddings(5)
    exact, variance = definition(theta, gamma), corpus.variance_of_one(theta, gamma)
    for t, states in enumerate(standing(make(form, gamma), gamma, theta, 4), start=1):
        total, squares = sums(form, t)
        torch.testing.assert_close(mean(states), total * exact, atol=WEIGHT_ERROR, rtol=0)
        got = corpus.mean_square_error(states, total * exact)
        assert got == pytest.approx(squares * variance, rel=1e-5)
        if form in ("zero start", "exact start"):
            assert got <= variance * ALPHA / (2 - ALPHA)  # Proposition 5's bound; the others start above it


def test_equal_weights_have_the_least_variance():
    """Decaying α_t: σ²/t exactly, up to t = 1/α and no longer; debiasing with constant α has more."""
    theta, estimator = embeddings(5), corpus.make("sogram", 0.0, schedule=AlphaSchedule(0.25, "decaying"))
    exact, variance = definition(theta, 0.0), corpus.variance_of_one(theta, 0.0)
    expected = [1, 1 / 2, 1 / 3, 1 / 4, 0.75**2 / 4 + 0.25**2]
    for share, states in zip(expected, standing(estimator, 0.0, theta, 5), strict=True):
        got = corpus.mean_square_error(states, exact)
        assert got == pytest.approx(share * variance, rel=1e-5)
    assert all(sums("debiased", t)[1] > 1 / t for t in range(2, 30))


def read_weights(estimator, steps):
    """The weights of the start and of each batch: batch s is the unit vector e_s, so they stand on the diagonal.

    Yields them after each step, as many as there have been batches, with the start's first.
    """
    unit = torch.eye(steps + 1, dtype=torch.double)
    items = torch.arange(corpus.ITEMS)
    estimator.start([GramianBatch(items, unit[[0] * corpus.ITEMS])])
    for s in range(1, steps + 1):
        estimator.observe(GramianBatch(torch.tensor([0]), unit[[s]]))
        assert torch.equal(estimator.gramian, torch.diag(estimator.gramian.diagonal()))
        yield estimator.gramian.diagonal()[: s + 1].tolist()


STEPS = 12


def expected_weights(form, t):
    geometric = [ALPHA * Q ** (t - s) for s in range(1, t + 1)]
    match form:
        case "zero start":
            return [0.0, *geometric]
        case "debiased":
            return [0.0, *(w / (1 - Q**t) for w in geometric)]
        case "exact start":
            return [Q**t, *geometric]
    equal = int(1 / ALPHA)
    if t <= equal:
        return [0.0, *([1 / t] * t)]
    first = [Q ** (t - equal) / equal] * equal
    return [0.0, *first, *(ALPHA * Q ** (t - s) for s in range(equal + 1, t + 1))]


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_a_moving_trajectory(form):
    """The weights sum to 1 in every form but the paper's, where they sum to 1 − (1−α)^t."""
    for t, weights in enumerate(read_weights(make(form, 1.0, dim=STEPS + 1), STEPS), start=1):
        assert weights == pytest.approx(expected_weights(form, t), abs=1e-7)
        assert sum(weights) == pytest.approx(1 - Q**t if form == "zero start" else 1, abs=1e-7)
        lag = sum(w * (t - s) for s, w in enumerate(weights[1:], start=1)) + weights[0] * t
        assert lag <= 1 / ALPHA - 1  # the bias is at most lag · δ


def test_a_table_is_followed():
    """{1: 1, 3: 0.5, 6: 0.1}: the rate of the latest step listed applies."""
    table = {6: 0.1, 1: 1.0, 3: 0.5}
    rates = [1.0, 1.0, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1]
    schedule = AlphaSchedule(0.01, table)
    assert [schedule.at(t) for t in range(1, 9)] == rates
    estimator = corpus.make("sogram", 1.0, dim=len(rates) + 1, schedule=schedule)
    *_, weights = read_weights(estimator, len(rates))
    literal = [0.0] * (len(rates) + 1)
    for s, rate in enumerate(rates, start=1):
        literal = [w * (1 - rate) for w in literal]
        literal[s] += rate
    assert weights == pytest.approx(literal)


@pytest.mark.parametrize("form", [{}, {2: 0.5}, {1: 0.0}, {1: 1.5}, {1: 0.5, 3: 1.5}], ids=str)
def test_a_table_without_a_rate_for_step_1_or_with_a_rate_outside_0_to_1_is_refused(form):
    with pytest.raises(ValueError, match="alpha"):
        AlphaSchedule(0.1, form)


@pytest.mark.parametrize("rates", [{1: 0.5, 2: 0.25, 4: 0.5}, {1: 0.2}])
def test_debiasing_a_table_divides_by_its_own_weights(rates):
    """c_t = 1 − prod (1 − α_s) whatever the rates are."""
    estimator = corpus.make("sogram", 1.0, dim=7, schedule=AlphaSchedule(1.0, rates), debias=True)
    for weights in read_weights(estimator, 6):
        assert sum(weights) == pytest.approx(1)


@pytest.mark.parametrize("companions", [None, embeddings(12, dim=2)], ids=["plain", "companions"])
def test_sogram_with_alpha_one_is_sampling(companions):
    dim = 0 if companions is None else 2
    for debias in (False, True):
        one = corpus.make("sogram", 1.0, schedule=AlphaSchedule(1.0), debias=debias, companion_dim=dim)
        other = corpus.make("sampling", 1.0, companion_dim=dim)
        for draw in corpus.pair_draws(2)[:5]:
            for estimator in (one, other):
                estimator.observe(draw.batch(embeddings(9), companions))
            torch.testing.assert_close(one.moments, other.moments, atol=0, rtol=0)


def test_proposition_5_variance_bound_is_approached_and_never_passed():
    """The sum of squared weights, read off the estimator, grows to α/(2−α)."""
    alpha, steps = 0.2, 60
    estimator = corpus.make("sogram", 1.0, dim=steps + 1, schedule=AlphaSchedule(alpha))
    squares = [sum(w * w for w in weights) for weights in read_weights(estimator, steps)]
    bound = alpha / (2 - alpha)
    assert all(a < b for a, b in itertools.pairwise(squares[:20]))
    assert max(squares) <= bound * (1 + 1e-12)
    assert squares[-1] == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_proposition_5_on_a_moving_trajectory(gamma, form):
    """Ḡ is the weighted mean of the Gramians; variance and both bounds, every sequence of draws enumerated."""
    length = 3
    thetas = [embeddings(6) + 0.3 * t * embeddings(7) for t in range(length)]
    exact = [definition(theta, gamma) for theta in thetas]
    delta = max(float(torch.linalg.norm(b - a)) for a, b in itertools.pairwise(exact))
    variances = [corpus.variance_of_one(theta, gamma) for theta in thetas]
    states = [(1.0, corpus.started(make(form, gamma), thetas[0]))]
    for theta in thetas:
        states = advance(states, corpus.draws(gamma, 1), observing(theta))
    of_start, *weights = expected_weights(form, length)
    smoothed = of_start * exact[0] + sum(w * g for w, g in zip(weights, exact, strict=True))
    torch.testing.assert_close(mean(states), smoothed, atol=WEIGHT_ERROR, rtol=0)
    spread = corpus.mean_square_error(states, smoothed)
    assert spread == pytest.approx(sum(w**2 * v for w, v in zip(weights, variances, strict=True)), rel=1e-5)
    bias = float(torch.linalg.norm(smoothed - exact[-1]))
    zero_start = Q**length * float(torch.linalg.norm(exact[-1])) if form == "zero start" else 0.0
    assert 0.1 * (bound := delta * (1 / ALPHA - 1) + zero_start) < bias <= bound


CACHES = CacheOptions()


@pytest.mark.parametrize("cache", [None, CACHES])
@pytest.mark.parametrize("form", FORMS)
def test_only_an_exact_start_begins_at_the_gramian(form, cache):
    """`start` sets Ĝ of no other form, though it fills their caches."""
    started = make(form, 1.0, companion_dim=2, cache=cache)
    estimator = corpus.started(started, embeddings(1), embeddings(2, dim=2))
    expected = definition(embeddings(1), 1.0, embeddings(2, dim=2)) * (form == "exact start")
    torch.testing.assert_close(estimator.moments, expected, atol=WEIGHT_ERROR, rtol=0)


def test_debiasing_is_exact_where_the_weights_are_tiny():
    """c_t = 1 − (1 − α)^t for α = 10⁻⁶, also of an estimator in float32, where 1 − α alone is off by 1 % of α."""
    schedule = AlphaSchedule(1e-6)
    estimator = SOGram(corpus.DIM, corpus.population(1.0), schedule, Sampling(corpus.DIM), debias=True)
    batch = corpus.pair_draws(2)[6].batch(embeddings(1).float())
    for _ in range(3):
        estimator.observe(batch)
        torch.testing.assert_close(estimator.gramian, batch_moments(batch), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_averaged_caches_have_the_mean_of_sogram(gamma):
    """With F_t = SAGA, E Ĝ(t) = sum_s α(1−α)^{t−s} G(s) on a moving trajectory, whatever the caches hold."""
    thetas = [embeddings(6) + 0.3 * t * embeddings(7) for t in range(3)]
    estimator = corpus.make("sogram", gamma, schedule=AlphaSchedule(ALPHA), cache=CACHES, project=False)
    states, smoothed = [(1.0, corpus.started(estimator, embeddings(8)))], 0
    for theta in thetas:
        states = advance(states, corpus.draws(gamma, 1), observing(theta))
        smoothed = Q * smoothed + ALPHA * definition(theta, gamma)
        torch.testing.assert_close(mean(states), smoothed, atol=WEIGHT_ERROR, rtol=0)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_averaged_caches_beat_both_where_caches_are_old(gamma):
    """Mean square errors by enumeration, one draw a step from the four pairs, on a slow trajectory.

    Averaging SAGA estimates is better than SAGA alone, whose variance is a stale cache's, and than averaging
    batch means, whose variance is that of the embeddings.
    """
    schedule = AlphaSchedule(ALPHA, "decaying")
    kinds = {
        "both": corpus.make("sogram", gamma, schedule=schedule, cache=CACHES, project=False),
        "sogram": corpus.make("sogram", gamma, schedule=schedule),
        "saga": corpus.make("sagram", gamma, project=False),
    }
    thetas = [embeddings(6) + (0.4 + 0.05 * t) * embeddings(7) for t in range(4)]
    errors = {}
    for kind, estimator in kinds.items():
        states = [(1.0, corpus.started(estimator, embeddings(6)))]
        for theta in thetas:
            states = advance(states, corpus.draws(gamma, 1), observing(theta))
        errors[kind] = corpus.mean_square_error(states, definition(thetas[-1], gamma))
    assert errors["both"] < 0.8 * min(errors["sogram"], errors["saga"]), errors
