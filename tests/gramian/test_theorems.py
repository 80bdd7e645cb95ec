"""The paper's propositions, by enumerating every draw on a tiny corpus: exact, not statistical."""

import copy
import itertools

import contracts
import pytest
import reference
import torch

from gramrun.gramian import make_estimator
from gramrun.gramian.exact import exact_gramian, relative_error
from gramrun.gramian.population import make_population
from gramrun.gramian.sagram import project_to_psd
from gramrun.gramian.surrogate import gravity, gravity_surrogate

DIM = 3
PAIR_ITEMS = torch.tensor([0, 0, 1, 3])  # item 2 has no pair
ITEMS = 4
BATCH = 2
WEIGHTINGS = ["frequency", "uniform"]


def embeddings(seed, rows=ITEMS, dim=DIM):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def batches(population, size=BATCH):
    return [torch.tensor(draw) for draw in itertools.product(range(population.size), repeat=size)]


def definition(theta, weighting):
    """Equation 4 by loops over pairs, or its footnote by loops over distinct items."""
    members = PAIR_ITEMS.tolist() if weighting == "frequency" else sorted(set(PAIR_ITEMS.tolist()))
    return reference.gramian([theta[item].tolist() for item in members])


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_exact_gramian_is_the_definition(weighting):
    theta = embeddings(0)
    population = make_population(PAIR_ITEMS, ITEMS, weighting)
    chunks = [(torch.tensor([0, 2]), theta[[0, 2]]), (torch.tensor([1, 3]), theta[[1, 3]])]
    summed = exact_gramian(chunks, population.item_weights.double())
    torch.testing.assert_close(summed, definition(theta, weighting), atol=1e-7, rtol=0)


def test_exact_gramian_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one chunk"):
        exact_gramian([], torch.ones(1))


def test_relative_error_by_hand():
    exact = torch.diag(torch.tensor([3.0, 4.0], dtype=torch.double))
    assert relative_error(torch.diag(torch.tensor([3.0, 9.0])), exact) == pytest.approx(1.0)
    assert relative_error(exact, exact) == 0


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(
    "arguments", [{"name": "sampling"}, {"name": "sagram", "beta": "1", "project": False}], ids=str
)
def test_proposition_3_unbiased(arguments, weighting):
    """Sampling and SAGA: the mean of Ĝ over every possible batch is G, with stale caches."""
    theta, stale = embeddings(1), embeddings(2)
    population = make_population(PAIR_ITEMS, ITEMS, weighting)
    before = make_estimator(embedding_dim=DIM, population=population, **arguments).double()
    if before.needs_start:
        before.start(stale)
        before.observe(torch.tensor([0, 1]), stale[population.member_items[[0, 1]]] + 1)  # uneven staleness
    total = torch.zeros(DIM, DIM, dtype=torch.double)
    draws = batches(population)
    for members in draws:
        estimator = copy.deepcopy(before)
        estimator.observe(members, theta[population.member_items[members]])
        total += estimator.gramian
    torch.testing.assert_close(total / len(draws), definition(theta, weighting), atol=1e-7, rtol=0)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_proposition_2_sag_stays_positive_semidefinite(weighting):
    """β = 1/n: over every sequence of two batches, from stale caches, Ĝ is the Gramian of some n vectors.

    Those vectors are the proof's own: the cached ones, with the batch's replaced. SAGA fails on the same draws.
    """
    theta, stale = embeddings(1), 2 * embeddings(2)
    population = make_population(PAIR_ITEMS, ITEMS, weighting)
    worst = {"1/n": 0.0, "1": 0.0}
    for beta in worst:
        for first, second in itertools.product(batches(population), repeat=2):
            estimator = make_estimator(
                "sagram", embedding_dim=DIM, population=population, beta=beta, project=False
            ).double()
            estimator.start(stale)
            vectors = stale[population.member_items].clone()
            for members, parameters in ((first, theta), (second, 0.1 * theta)):
                fresh = parameters[population.member_items[members]]
                estimator.observe(members, fresh)
                vectors[members] = fresh
                if beta == "1/n":
                    expected = vectors.T @ vectors / population.size
                    torch.testing.assert_close(estimator.gramian, expected, atol=1e-7, rtol=1e-6)
                worst[beta] = min(worst[beta], float(torch.linalg.eigvalsh(estimator.gramian)[0]))
    assert worst["1/n"] > -1e-7  # weights of items are float32
    assert worst["1"] < -0.1


def test_sag_is_biased():
    """β = 1/n is not unbiased where caches are stale: the enumeration above can fail."""
    theta, stale = embeddings(1), embeddings(2)
    population = make_population(PAIR_ITEMS, ITEMS, "frequency")
    before = make_estimator("sagram", embedding_dim=DIM, population=population, beta="1/n").double()
    before.start(stale)
    total = torch.zeros(DIM, DIM, dtype=torch.double)
    draws = batches(population)
    for members in draws:
        estimator = copy.deepcopy(before)
        estimator.observe(members, theta[population.member_items[members]])
        total += estimator.gramian
    assert torch.linalg.norm(total / len(draws) - definition(theta, "frequency")) > 0.1


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("beta", ["1/n", "1"])
@pytest.mark.parametrize("project", [True, False])
def test_sagram_equals_its_literal_twin(beta, project, weighting):
    population = make_population(contracts_pairs(), 7, weighting)
    steps = contracts.trajectory(population, 30, 4, seed=11)
    fast = make_estimator(
        "sagram", embedding_dim=contracts.DIM, population=population, beta=beta, project=project
    ).double()
    fast.start(steps[0][0].double())
    slow = reference.SAGram(population.member_items.tolist(), steps[0][0].double(), beta, project)
    for theta, members, _ in steps:
        theta = theta.double()
        fast.observe(members, theta[population.member_items[members]])
        expected = slow.observe(members.tolist(), theta)
        torch.testing.assert_close(fast.gramian, expected, atol=1e-6, rtol=1e-6)


def contracts_pairs():
    return torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4, 4, 5, 6])


def test_sagram_at_full_batch_is_exact():
    """A batch that holds every member once makes SAG and SAGA the exact Gramian."""
    theta, stale = embeddings(3), embeddings(4)
    population = make_population(PAIR_ITEMS, ITEMS, "frequency")
    everyone = torch.arange(population.size)
    for beta in ("1/n", "1"):
        estimator = make_estimator("sagram", embedding_dim=DIM, population=population, beta=beta).double()
        estimator.start(stale)
        estimator.observe(everyone, theta[population.member_items])
        torch.testing.assert_close(estimator.gramian, definition(theta, "frequency"))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_proposition_5_on_a_standing_trajectory(weighting):
    """E Ĝ(t) = (1 − (1−α)^t) G, and E‖Ĝ − Ḡ‖² = σ² α² Σ (1−α)^2τ ≤ σ² α/(2−α): every sequence of draws."""
    alpha, length = 0.3, 3
    theta = embeddings(5)
    population = make_population(PAIR_ITEMS, ITEMS, weighting)
    exact = definition(theta, weighting)
    singles = [torch.outer(theta[i], theta[i]) for i in population.member_items.tolist()]
    variance = sum(float((s - exact).square().sum()) for s in singles) / population.size
    finals = []
    for draws in itertools.product(range(population.size), repeat=length):
        estimator = make_estimator("sogram", embedding_dim=DIM, population=population, alpha=alpha).double()
        for member in draws:
            estimator.observe(torch.tensor([member]), theta[population.member_items[[member]]])
        finals.append(estimator.gramian)
    mean = torch.stack(finals).mean(0)
    torch.testing.assert_close(mean, (1 - (1 - alpha) ** length) * exact)
    spread = float((torch.stack(finals) - mean).square().sum((1, 2)).mean())
    assert spread == pytest.approx(variance * alpha**2 * sum((1 - alpha) ** (2 * t) for t in range(length)))
    assert spread < variance * alpha / (2 - alpha)


def test_proposition_5_variance_bound_is_reached_and_never_passed():
    """Over many steps on a standing trajectory the exact variance grows to σ² α/(2−α), by its recursion.

    Var Ĝ(t) = (1−α)² Var Ĝ(t−1) + α² σ² holds because draws are independent; each of its two coefficients
    is read off the estimator itself.
    """
    alpha = 0.05
    population = make_population(PAIR_ITEMS, ITEMS, "frequency")
    estimator = make_estimator("sogram", embedding_dim=1, population=population, alpha=alpha).double()
    estimator.gramian.fill_(1.0)
    estimator.observe(torch.tensor([0]), torch.zeros(1, 1, dtype=torch.double))
    kept = float(estimator.gramian)
    estimator.gramian.zero_()
    estimator.observe(torch.tensor([0]), torch.ones(1, 1, dtype=torch.double))
    taken = float(estimator.gramian)
    variance, history = 0.0, []
    for _ in range(500):
        variance = kept**2 * variance + taken**2 * 1.0
        history.append(variance)
    bound = alpha / (2 - alpha)
    assert max(history) <= bound
    assert history[-1] == pytest.approx(bound)


def test_proposition_5_on_a_moving_trajectory():
    """Mean, variance and both bounds of the proposition, with every sequence of draws enumerated."""
    alpha, length = 0.4, 3
    population = make_population(PAIR_ITEMS, ITEMS, "frequency")
    thetas = [embeddings(6) + 0.3 * t * embeddings(7) for t in range(length)]
    exact = [definition(theta, "frequency") for theta in thetas]
    delta = max(float(torch.linalg.norm(b - a)) for a, b in itertools.pairwise(exact))
    finals = []
    for draws in itertools.product(range(population.size), repeat=length):
        estimator = make_estimator("sogram", embedding_dim=DIM, population=population, alpha=alpha).double()
        for theta, member in zip(thetas, draws, strict=True):
            estimator.observe(torch.tensor([member]), theta[population.member_items[[member]]])
        finals.append(estimator.gramian)
    smoothed = sum(alpha * (1 - alpha) ** (length - 1 - t) * g for t, g in enumerate(exact))
    torch.testing.assert_close(torch.stack(finals).mean(0), smoothed)
    spread = float((torch.stack(finals) - smoothed).square().sum((1, 2)).mean())
    variances = [
        sum(float((torch.outer(t[i], t[i]) - g).square().sum()) for i in PAIR_ITEMS.tolist())
        / len(PAIR_ITEMS)
        for t, g in zip(thetas, exact, strict=True)
    ]
    weights = [alpha * (1 - alpha) ** (length - 1 - t) for t in range(length)]
    assert spread == pytest.approx(sum(w**2 * v for w, v in zip(weights, variances, strict=True)))
    assert spread <= max(variances) * alpha / (2 - alpha)
    bias = float(torch.linalg.norm(smoothed - exact[-1]))
    bound = delta * (1 / alpha - 1) + (1 - alpha) ** length * float(torch.linalg.norm(exact[-1]))
    assert 0.1 * bound < bias <= bound


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sampling_variance_falls_with_the_batch(size):
    """E‖Ĝ − G‖² = σ²/|B|, by enumeration."""
    theta = embeddings(8)
    population = make_population(PAIR_ITEMS, ITEMS, "frequency")
    exact = definition(theta, "frequency")
    rows = theta[population.member_items]
    variance = (torch.einsum("ni,nj->nij", rows, rows) - exact).square().sum((1, 2)).mean()
    squares = []
    for members in batches(population, size):
        estimator = make_estimator("sampling", embedding_dim=DIM, population=population).double()
        estimator.observe(members, rows[members])
        squares.append((estimator.gramian - exact).square().sum())
    torch.testing.assert_close(torch.stack(squares).mean(), variance / size)


def test_sogram_with_alpha_one_is_sampling():
    theta = embeddings(9)
    population = make_population(PAIR_ITEMS, ITEMS, "frequency")
    one, other = (
        make_estimator(name, embedding_dim=DIM, population=population, alpha=1.0).double()
        for name in ("sogram", "sampling")
    )
    for members in batches(population)[:5]:
        for estimator in (one, other):
            estimator.observe(members, theta[population.member_items[members]])
        torch.testing.assert_close(one.gramian, other.gramian)


def test_projection_is_the_nearest_psd_matrix():
    generator = torch.Generator().manual_seed(10)
    for _ in range(20):
        root = torch.randn(4, 4, generator=generator, dtype=torch.double)
        matrix = root + root.T
        projected = project_to_psd(matrix)
        assert torch.linalg.eigvalsh(projected)[0] > -1e-12
        # Moreau: the residual is in the polar cone and orthogonal to the projection.
        residual = matrix - projected
        assert torch.linalg.eigvalsh(residual)[-1] < 1e-12
        assert float((residual * projected).sum()) == pytest.approx(0, abs=1e-10)
        positive = root @ root.T
        assert torch.equal(project_to_psd(positive), positive)


LEFT_PAIRS, RIGHT_PAIRS = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 2, 2, 3])
LEFT_ITEMS, RIGHT_ITEMS = 3, 4  # right item 1 has no pair


def towers(seed):
    """Two tiny non-linear towers that share a parameter, as functions of item ids."""
    generator = torch.Generator().manual_seed(seed)

    def parameter(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.double).requires_grad_()

    left, right, shared = parameter(LEFT_ITEMS, 4), parameter(RIGHT_ITEMS, 4), parameter(4, DIM)
    parameters = [left, right, shared]
    return parameters, lambda i: torch.tanh(left[i]) @ shared, lambda j: torch.tanh(right[j] * 2) @ shared


def literal_gravity(u, v, weighting):
    """g by its double sum over pairs (equation 3), or over distinct items that have pairs."""
    if weighting == "frequency":
        left, right = LEFT_PAIRS, RIGHT_PAIRS
    else:
        left, right = LEFT_PAIRS.unique(), RIGHT_PAIRS.unique()
    return sum((u(i) @ v(j)) ** 2 for i in left for j in right) / (len(left) * len(right))


def surrogate_of_pair(pair, u, v, gramians, populations):
    left, right = LEFT_PAIRS[pair], RIGHT_PAIRS[pair]
    importance = [
        None if p.importance is None else p.importance.double()[i][None]
        for p, i in zip(populations, (left, right), strict=True)
    ]
    return gravity_surrogate(u(left)[None], v(right)[None], *gramians, *importance)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_gradient_identity(weighting):
    """With exact Gramians, the mean over i of ∇ĝ_i is autograd's ∇g: no ½, no factor n."""
    parameters, u, v = towers(0)
    populations = [
        make_population(LEFT_PAIRS, LEFT_ITEMS, weighting),
        make_population(RIGHT_PAIRS, RIGHT_ITEMS, weighting),
    ]
    embedded = [u(torch.arange(LEFT_ITEMS)), v(torch.arange(RIGHT_ITEMS))]
    gramians = [
        exact_gramian([(torch.arange(len(e)), e)], p.item_weights.double())
        for e, p in zip(embedded, populations, strict=True)
    ]
    expected = torch.autograd.grad(literal_gravity(u, v, weighting), parameters)
    mean = sum(surrogate_of_pair(i, u, v, gramians, populations) for i in range(4)) / 4
    for got, want in zip(torch.autograd.grad(mean, parameters), expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)  # weights are float32
    with torch.no_grad():
        g = float(literal_gravity(u, v, weighting))
    assert float(gravity(*gramians).detach()) == pytest.approx(g, rel=1e-6)
    assert float(mean.detach()) == pytest.approx(2 * g, rel=1e-6)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_proposition_1_over_every_batch_and_every_pair(weighting):
    """Sampled Gramians from B, gradient from an independent i: the mean over all of them is ∇g."""
    parameters, u, v = towers(1)
    populations = [
        make_population(LEFT_PAIRS, LEFT_ITEMS, weighting),
        make_population(RIGHT_PAIRS, RIGHT_ITEMS, weighting),
    ]
    expected = torch.autograd.grad(literal_gravity(u, v, weighting), parameters)
    total = [torch.zeros_like(p) for p in parameters]
    count = 0
    for left_batch in batches(populations[0]):
        for right_batch in batches(populations[1]):
            gramians = []
            for embed, population, batch in zip((u, v), populations, (left_batch, right_batch), strict=True):
                estimator = make_estimator("sampling", embedding_dim=DIM, population=population).double()
                estimator.observe(batch, embed(population.member_items[batch]).detach())
                gramians.append(estimator.gramian)
            mean = sum(surrogate_of_pair(i, u, v, gramians, populations) for i in range(4)) / 4
            for t, g in zip(total, torch.autograd.grad(mean, parameters), strict=True):
                t += g
            count += 1
    for got, want in zip(total, expected, strict=True):
        torch.testing.assert_close(got / count, want, atol=1e-6, rtol=1e-6)


def test_dependent_batches_are_biased():
    """Why B and B' are separate: with Ĝ made from the gradient's own pair, the mean is not ∇g."""
    parameters, u, v = towers(1)
    populations = [
        make_population(LEFT_PAIRS, LEFT_ITEMS, "frequency"),
        make_population(RIGHT_PAIRS, RIGHT_ITEMS, "frequency"),
    ]
    expected = torch.autograd.grad(literal_gravity(u, v, "frequency"), parameters)
    terms = []
    for i in range(4):
        gramians = [torch.outer(e, e).detach() for e in (u(LEFT_PAIRS[i]), v(RIGHT_PAIRS[i]))]
        terms.append(surrogate_of_pair(i, u, v, gramians, populations))
    got = torch.autograd.grad(sum(terms) / 4, parameters)
    assert max(float((a - b).abs().max()) for a, b in zip(got, expected, strict=True)) > 0.05
