"""Inner products over time: against a loop over pairs, against gravity itself, and over a resume."""

import csv

import numpy as np
import pytest
import torch

from gramrun import runs
from gramrun.runs import checkpoints
from gramrun.training.inner_products import COLUMNS, KINDS, draw_pairs, inner_products
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer


def start(path, config, corpus):
    return runs.create(path, "train", config, corpus.content_hash), Trainer(config, corpus)


def fitted(path, config, corpus):
    run, trainer = start(path, config, corpus)
    fit(run, trainer, corpus)
    return run, trainer


def rows_of(path):
    with (path / "inner_products.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trainer(make_config, corpus):
    """Under the paper's gravity, over pairs."""
    return Trainer(make_config("train.gamma_left=1", "train.gamma_right=1"), corpus)


def test_each_product_is_that_of_its_pair(trainer, corpus):
    pairs = draw_pairs(corpus, 300, seed=1)
    products = inner_products(trainer.model, pairs)
    assert tuple(products) == KINDS
    with torch.no_grad():
        for kind, (left, right) in pairs.items():
            for position in range(len(left)):
                u = trainer.model.left_embeddings(torch.tensor([left[position]])).double()
                v = trainer.model.right_embeddings(torch.tensor([right[position]])).double()
                assert products[kind][position] == pytest.approx(float((u * v).sum()), rel=1e-5, abs=1e-9)


def test_pairs_are_of_their_kind_and_follow_from_the_seed_alone(corpus):
    pairs = draw_pairs(corpus, 2000, seed=1)
    again, other = draw_pairs(corpus, 2000, seed=1), draw_pairs(corpus, 2000, seed=2)
    sets = {
        split: set(zip(corpus.pairs(split).left.tolist(), corpus.pairs(split).right.tolist(), strict=True))
        for split in ("train", "validation")
    }
    for kind, (left, right) in pairs.items():
        assert left.shape == right.shape == (2000,)
        np.testing.assert_array_equal(left, again[kind][0])
        np.testing.assert_array_equal(right, again[kind][1])
        assert not np.array_equal(left, other[kind][0])
        drawn = set(zip(left.tolist(), right.tolist(), strict=True))
        if kind in sets:
            assert drawn <= sets[kind]
        else:
            assert not drawn <= sets["train"] | sets["validation"]


def test_random_pairs_estimate_gravity(trainer, corpus):
    """The mean of ⟨u_i, v_j⟩² over drawn i and j is g, within four standard errors."""
    squares = inner_products(trainer.model, draw_pairs(corpus, 200_000, seed=3))["random"] ** 2
    left, right = trainer.left.exact_gramian(), trainer.right.exact_gramian()
    gravity = float((left * right).sum())
    assert abs(squares.mean() - gravity) < 4 * squares.std() / np.sqrt(len(squares))
    assert squares.std() / np.sqrt(len(squares)) < 0.02 * gravity  # else the test could not fail


def test_more_pairs_than_are_gathered_at_once(trainer, corpus):
    pairs = draw_pairs(corpus, 70_000, seed=0)
    products = inner_products(trainer.model, pairs)
    with torch.no_grad():
        u = trainer.model.left_embeddings(torch.from_numpy(pairs["random"][0])).double()
        v = trainer.model.right_embeddings(torch.from_numpy(pairs["random"][1])).double()
    np.testing.assert_allclose(products["random"], (u * v).sum(1), rtol=1e-5, atol=1e-9)


def test_a_run_has_three_rows_an_evaluation(tmp_path, make_config, corpus):
    run, trainer = fitted(tmp_path / "r", make_config("evaluation.inner_products=500"), corpus)
    rows = rows_of(run.path)
    assert tuple(rows[0]) == COLUMNS
    assert [(int(row["step"]), row["pairs"]) for row in rows] == [(s, k) for s in (20, 40) for k in KINDS]
    last = inner_products(trainer.model, draw_pairs(corpus, 500, seed=0))["random"]
    assert float(rows[-1]["mean"]) == pytest.approx(last.mean())
    assert float(rows[-1]["q0.05"]) == pytest.approx(np.quantile(last, 0.05))


class Killed(BaseException):
    """What no one catches."""


@pytest.mark.parametrize("torn", [False, True])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, make_config, corpus, torn):
    settings = ("evaluation.inner_products=500", "evaluation.every=10", "train.checkpoint_every=15")
    config = make_config(*settings)
    whole, _ = fitted(tmp_path / "whole", config, corpus)
    run, trainer = start(tmp_path / "r", config, corpus)
    steps = trainer.steps

    def until_killed():
        for record in steps():
            if record.step == 28:
                raise Killed
            yield record

    trainer.steps = until_killed
    with pytest.raises(Killed):
        fit(run, trainer, corpus)
    assert {row["step"] for row in rows_of(run.path)} == {"10", "20"}  # 20 is past the checkpoint of 15
    if torn:
        path = run.path / "inner_products.csv"
        path.write_text(path.read_text().rstrip("\n")[:-3])
    run, trainer = runs.resume(run.path, "train", config, corpus.content_hash), Trainer(config, corpus)
    saved = checkpoints.restore(run, trainer)
    fit(run, trainer, corpus, saved["losses"])
    assert (run.path / "inner_products.csv").read_bytes() == (whole.path / "inner_products.csv").read_bytes()
