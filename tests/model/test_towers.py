"""Towers against a literal twin, shared tables, the initial scale, and sparse gradients against dense ones."""

import pytest
import torch

from gramrun.config import ModelSection
from gramrun.model.towers import FeatureColumn, TwoTower
from gramrun.training.objective import squared_error

SIZES = {"user": 4, "movie": 3, "genre": 5}
GENRES = [[0, 2, 4], [], [2]]  # movie 1 has none


def columns():
    left = [FeatureColumn("user", torch.arange(5), torch.arange(4, dtype=torch.int32))]
    right = [
        FeatureColumn("movie", torch.arange(4), torch.arange(3, dtype=torch.int32)),
        FeatureColumn("genre", torch.tensor([0, 3, 3, 4]), torch.tensor([0, 2, 4, 2], dtype=torch.int32)),
    ]
    return left, right


def model(seed=0, sparse=True, **shape):
    left, right = columns()
    shape = {"embedding_dim": 3, "input_dim": 4, "hidden": (6, 5), **shape}
    return TwoTower(left, right, SIZES, ModelSection(**shape), seed, sparse)


def literal(two_tower, tower, bags, shape):
    """One item's embedding by loops over features and entries, as the module's docstring has it."""
    inputs = []
    for column, values in zip(tower.columns, bags, strict=True):
        rows = [two_tower.tables[f"table:{column.vocabulary}"].weight[i] for i in values]
        width = two_tower.tables[f"table:{column.vocabulary}"].weight.shape[1]
        total = [sum(float(row[d]) for row in rows) for d in range(width)]
        if shape["bag"] == "mean" and rows:
            total = [value / len(rows) for value in total]
        inputs.append(total)
    if not shape["hidden"]:
        out = [sum(column) for column in zip(*inputs, strict=True)]
    else:
        flat = [value for bag in inputs for value in bag]
        hidden = flat
        for layer in tower.hidden:
            hidden = [max(0.0, value) for value in apply(layer, hidden)]
        out = apply(tower.output, hidden)
        if shape["skip"]:
            out = [a + b for a, b in zip(out, apply(tower.skip, flat), strict=True)]
    return [max(0.0, value) for value in out] if shape["output"] == "relu" else out


def apply(layer, values):
    bias = layer.bias if layer.bias is not None else [0.0] * layer.out_features
    return [
        float(b) + sum(float(w) * x for w, x in zip(row, values, strict=True))
        for row, b in zip(layer.weight, bias, strict=True)
    ]


@pytest.mark.parametrize("bag", ["sum", "mean"])
@pytest.mark.parametrize("output", ["linear", "relu"])
@pytest.mark.parametrize(("hidden", "skip"), [((), False), ((6,), False), ((6, 5), True)])
@torch.no_grad()
def test_towers_equal_their_literal_twin(bag, output, hidden, skip):
    shape = {"bag": bag, "output": output, "hidden": hidden, "skip": skip}
    two_tower = model(**shape, table_scale=1.0)
    users = torch.tensor([3, 0, 3])
    expected = [literal(two_tower, two_tower.left, [[u]], shape) for u in users.tolist()]
    torch.testing.assert_close(two_tower.left_embeddings(users), torch.tensor(expected))
    movies = torch.tensor([1, 0, 2, 1])
    expected = [literal(two_tower, two_tower.right, [[m], GENRES[m]], shape) for m in movies.tolist()]
    torch.testing.assert_close(two_tower.right_embeddings(movies), torch.tensor(expected))
    assert two_tower.embedding_dim == 3


def test_sides_that_name_one_vocabulary_share_its_table():
    column = lambda: FeatureColumn("page", torch.arange(4), torch.arange(3, dtype=torch.int32))  # noqa: E731
    two_tower = TwoTower([column()], [column()], {"page": 3}, ModelSection(embedding_dim=3), seed=0)
    assert len(two_tower.table_parameters()) == 1
    pages = torch.arange(3)
    assert torch.equal(two_tower.left_embeddings(pages), two_tower.right_embeddings(pages))


def test_seed_decides_the_parameters():
    first, same, other = (list(model(seed).parameters()) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not torch.equal(first[0], other[0])


@torch.no_grad()
def test_initial_scale_is_what_the_documentation_says():
    """One-hot: s at any depth. MovieLens-like sides: variances of summed bags and features add up, as does a skip."""
    items, s = 3000, 0.1
    one = FeatureColumn("user", torch.arange(items + 1), torch.arange(items, dtype=torch.int32))
    year = FeatureColumn("year", torch.arange(items + 1), torch.arange(items, dtype=torch.int32) % 500)
    two_genres = FeatureColumn(
        "genre", torch.arange(items + 1) * 2, torch.arange(2 * items, dtype=torch.int32) % 999
    )
    sizes = {"user": items, "year": 500, "genre": 999}

    def spread(columns, hidden, skip=False):
        shape = ModelSection(embedding_dim=32, hidden=hidden, skip=skip, table_scale=s)
        two_tower = TwoTower(columns, columns, sizes, shape, seed=0)
        return float(two_tower.left_embeddings(torch.arange(items)).square().mean().sqrt())

    for hidden in ((), (512,), (512, 256)):
        assert spread([one], hidden) == pytest.approx(s, rel=0.15)
    assert spread([one, year, two_genres], ()) == pytest.approx(s * (1 + 1 + 2) ** 0.5, rel=0.15)
    assert spread([one, year, two_genres], (512,)) == pytest.approx(s * ((1 + 1 + 2) / 3) ** 0.5, rel=0.15)
    assert spread([one], (512,), skip=True) == pytest.approx(s * 2**0.5, rel=0.15)


def test_squared_error_by_hand():
    u, v = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[3.0, 1.0], [5.0, -1.0]])  # scores 5, -1
    assert squared_error(u, v, 1.0) == pytest.approx((16 + 4) / 2)
    assert squared_error(u, v, torch.tensor([4.0, -1.0])) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["item.genre", "items", "50%"])
def test_any_vocabulary_name_makes_a_table(name):
    column = FeatureColumn(name, torch.arange(4), torch.arange(3, dtype=torch.int32))
    two_tower = TwoTower(
        [column], [column], {name: 3}, ModelSection(embedding_dim=3, input_dim=4, hidden=(5,)), seed=0
    )
    assert two_tower.left_embeddings(torch.arange(3)).shape == (3, 3)
    two_tower.load_state_dict(two_tower.state_dict())
