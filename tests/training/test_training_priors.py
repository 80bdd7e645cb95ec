"""Training with a prior: the objective, the run's record of the prior's file, and the refusals."""

import pytest
import torch

from gramrun import runs
from gramrun.base.errors import InputError
from gramrun.gramian.low_rank_prior import LowRankPrior, save_prior
from gramrun.model.build import embed_all
from gramrun.training.trainer import Trainer

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


@pytest.mark.parametrize("name", ["sampling", "sogram", "sagram", "control-variate", "exact"])
def test_training_towards_a_prior_lowers_the_objective_that_has_it(make_config, corpus, name):
    trainer = Trainer(make_config(*SVD, f"estimator.name={name}", "train.steps=200"), corpus)

    def objective():
        loss, gravity = literal_terms(trainer, corpus)
        return loss + trainer.config.train.gravity * gravity

    start = objective()
    for _ in trainer.steps():
        pass
    assert objective() < 0.8 * start


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


def test_a_prior_for_another_corpus_is_refused(make_config, corpus, tmp_path):
    save_prior(LowRankPrior(torch.ones(3, 2), torch.ones(corpus.right.items, 2)), tmp_path / "p.npz")
    with pytest.raises(InputError, match=rf"left .*3.*{corpus.left.items}|{corpus.left.items}.*3"):
        Trainer(make_config("train.prior.name=file", f"train.prior.path={tmp_path / 'p.npz'}"), corpus)
