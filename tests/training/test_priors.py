"""Priors are made of the training pairs alone, and training with one lowers the objective that has it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import save_prior

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError
from gramrun.config import PriorSection
from gramrun.gramian.low_rank_prior import LowRankPrior
from gramrun.model.build import embed_all
from gramrun.training.objective import make_prior
from gramrun.training.trainer import Trainer


def product(prior):
    return (prior.left.double() @ prior.right.double().T).numpy()


def observed(corpus, values=1.0):
    matrix = np.zeros((corpus.left.items, corpus.right.items))
    matrix[corpus.train.left, corpus.train.right] = values
    return matrix


def make(corpus, target="one", **section):
    return make_prior(PriorSection(**section), corpus, target=target, seed=0)


def test_popularity_has_the_margins_of_the_training_pairs(corpus):
    p, matrix = product(make(corpus, name="popularity")), observed(corpus)
    np.testing.assert_allclose(p, np.outer(matrix.sum(1), matrix.sum(0)) / matrix.sum(), rtol=1e-6)


@pytest.mark.parametrize("target", ["one", "value"])
def test_svd_approximates_the_training_matrix(corpus, target):
    ratings = np.random.default_rng(0).integers(1, 6, len(corpus.train)).astype(np.float32)
    rated = replace(corpus, train=replace(corpus.train, target=ratings))
    matrix = observed(rated, ratings if target == "value" else 1.0)
    p = product(make(rated, target, name="svd", rank=3))
    omitted = np.linalg.svd(matrix, compute_uv=False)[3:]
    assert np.linalg.norm(matrix - p) == pytest.approx(np.linalg.norm(omitted), rel=1e-6)


def test_the_largest_rank_is_named(corpus):
    assert make(corpus, name="svd", rank=79).rank == 79
    with pytest.raises(
        ConfigError, match="train.prior.rank is 80, but .* has 120 × 80 items.*set it to 79"
    ) as caught:
        make(corpus, name="svd", rank=80)
    assert "\n" not in str(caught.value)


def test_files_must_fit_the_corpus(corpus, tmp_path):
    prior = LowRankPrior(torch.randn(120, 2), torch.randn(80, 2))
    save_prior(prior, tmp_path / "p.npz")
    made = make(corpus, name="file", path=tmp_path / "p.npz")
    assert torch.equal(made.left, prior.left)
    assert torch.equal(made.right, prior.right)
    save_prior(LowRankPrior(prior.right, prior.left), tmp_path / "turned.npz")
    with pytest.raises(InputError, match="left has shape .80, .*but the corpus has 120 left items"):
        make(corpus, name="file", path=tmp_path / "turned.npz")


SVD = ("train.prior.name=svd", "train.prior.rank=3")


def literal_terms(trainer, corpus):
    """(1/n) sum_i (⟨u_i, v_i⟩ − 1)² and sum_x sum_y w_x w_y (⟨u_x, v_y⟩ − ⟨q_x, r_y⟩)², by whole matrices."""
    u, v = (e.double() for e in embed_all(trainer.model, corpus))
    prior = trainer.objective.prior
    scores = u @ v.T
    wanted = 0 if prior is None else prior.left.double() @ prior.right.double().T
    left, right = (s.population.item_weights.double() for s in (trainer.left, trainer.right))
    loss = (scores[corpus.train.left, corpus.train.right] - 1).square().mean()
    return float(loss), float(left @ (scores - wanted).square() @ right)


@pytest.mark.parametrize(
    "overrides", [(), SVD, ("train.prior.name=popularity", "train.gamma_left=0.5")], ids=str
)
def test_gravity_of_exact_moments_is_its_double_sum(make_config, corpus, overrides):
    trainer = Trainer(make_config("estimator.name=exact", "train.steps=1", *overrides), corpus)
    expected = literal_terms(trainer, corpus)[1]
    list(trainer.steps())  # the step's Gramians are those before it
    moments = trainer.left_estimator.moments, trainer.right_estimator.moments
    assert trainer.objective.penalty(*moments) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["sogram", "sagram"])
def test_training_towards_a_prior_lowers_the_objective_that_has_it(make_config, corpus, name):
    trainer = Trainer(make_config(*SVD, f"estimator.name={name}", "train.steps=200"), corpus)

    def objective():
        loss, gravity = literal_terms(trainer, corpus)
        return loss + trainer.config.train.gravity * gravity

    start = objective()
    for _ in trainer.steps():
        pass
    assert objective() < 0.4 * start  # without the prior it would be .49


def test_a_run_goes_on_only_with_the_prior_it_was_started_with(make_config, corpus, tmp_path):
    file, generator = tmp_path / "prior.npz", torch.Generator().manual_seed(0)

    def save():
        sizes = (corpus.left.items, corpus.right.items)
        save_prior(LowRankPrior(*(torch.randn(n, 2, generator=generator) for n in sizes)), file)

    save()
    config = make_config("train.prior.name=file", f"train.prior.path={file}")
    run = runs.create(tmp_path / "run", "train", config, corpus.content_hash)
    assert set(run.manifest["inputs"]) == {"prior"}
    runs.resume(run.path, "train", config, corpus.content_hash)
    save()
    with pytest.raises(InputError, match=r"prior\.npz: is another prior than the one .*run was started with"):
        runs.resume(run.path, "train", config, corpus.content_hash)
