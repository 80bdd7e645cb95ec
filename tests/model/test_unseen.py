"""Items never seen: their ids are 0 to the bit, dropped ids are too, and new items have the embeddings of their features."""

import numpy as np
import pytest
import torch
from helpers import made_corpus, made_side

from gramrun.base.errors import ConfigError
from gramrun.data.batches import Stream, step_generator
from gramrun.data.corpus import bags, one_hot
from gramrun.data.split import split_corpus
from gramrun.model.build import embed_new_items, make_model
from gramrun.model.l2 import row_frequencies
from gramrun.model.towers import TwoTower
from gramrun.training.trainer import Trainer

COUNT = 60
DROPPED = ("train.id_dropout_left=0.3", "train.id_dropout_right=0.6")
LINEAR, HIDDEN = ("model.hidden=[]",), ("model.hidden=[9]", "model.input_dim=6", "model.skip=true")


def words():
    random = np.random.default_rng(3)
    return [random.integers(14, size=random.integers(0, 5)).tolist() for _ in range(COUNT)]


def wiki(by="right-items", values=None):
    """Pages that link to pages, with a shared table of ids and one of words."""
    pairs = np.unique(np.random.default_rng(0).integers(COUNT * COUNT, size=900))
    side = made_side("page", COUNT, bags("words", "word", values or words()))
    return split_corpus(made_corpus(side, side, np.divmod(pairs, COUNT), {"word": 20}), 0.25, by=by)


def untrained(corpus):
    """Rows of each table without a training pair, by loops."""
    rows = {"page": set(range(COUNT)), "word": set(range(20))}
    for pairs, side in ((corpus.train.left, corpus.left), (corpus.train.right, corpus.right)):
        for item in set(pairs.tolist()):
            for f in side.features:
                rows[f.vocabulary] -= set(f.indices[f.offsets[item] : f.offsets[item + 1]].tolist())
    return {name: sorted(left_over) for name, left_over in rows.items()}


@pytest.mark.parametrize("engine", ["compiled", "plain"])
@pytest.mark.parametrize("by", ["pairs", "right-items", "left-items"])
def test_rows_without_a_training_pair_are_zero_and_stay_it(make_config, by, engine):
    corpus = wiki(by)
    config = make_config(*LINEAR, f"train.engine={engine}", *(DROPPED if by != "pairs" else ()))
    trainer = Trainer(config, corpus)
    for _ in range(2):
        for name, rows in untrained(corpus).items():
            table = trainer.model.named_tables()[f"table:{name}"]
            is_zero = (table == 0).all(1)
            assert is_zero.nonzero().flatten().tolist() == rows
            assert rows or (name, by) == ("page", "pairs")
        list(trainer.steps())


def test_every_other_row_and_layer_starts_as_it_did(make_config, monkeypatch):
    """Clearing draws nothing: only the untrained rows differ from the model's own start."""
    config, corpus = make_config(*HIDDEN), wiki()
    cleared = make_model(config, corpus).state_dict()
    monkeypatch.setattr("gramrun.model.build.clear_untrained_rows", lambda model, corpus, split: None)
    started = make_model(config, corpus)
    for name, rows in untrained(corpus).items():
        assert started.named_tables()[f"table:{name}"][rows].abs().min() > 0
        with torch.no_grad():
            started.named_tables()[f"table:{name}"][rows] = 0
    assert all(torch.equal(value, cleared[name]) for name, value in started.state_dict().items())


@pytest.mark.parametrize("towers", [LINEAR, HIDDEN])
def test_an_unseen_item_has_the_embedding_of_its_features_to_the_bit(make_config, towers):
    corpus = wiki()
    trainer = Trainer(make_config(*towers, *DROPPED), corpus)
    list(trainer.steps())
    model: TwoTower = trainer.model
    unseen = np.flatnonzero((corpus.right_frequency == 0) & (corpus.left_frequency == 0))
    assert len(unseen) > 5
    values = [words()[i] for i in unseen]
    items = torch.from_numpy(unseen)
    for side, name, embed in (
        (corpus.left, "left", model.left_embeddings),
        (corpus.right, "right", model.right_embeddings),
    ):
        new = embed_new_items(model, name, side, {"words": bags("words", "word", values)})
        assert torch.equal(new, embed(items))
        dropped = trainer.engine.embed(
            name, torch.from_numpy(unseen), torch.ones(len(unseen), dtype=torch.bool)
        )
        torch.testing.assert_close(dropped, new)


def test_dropped_ids_leave_the_features(make_config):
    """Of a seen item, each engine's embedding without its id is that of a new item with its features."""
    corpus = wiki()
    items = torch.arange(COUNT)
    drop = torch.arange(COUNT) % 3 == 0
    for engine in ("compiled", "plain"):
        trainer = Trainer(make_config(*HIDDEN, f"train.engine={engine}"), corpus)
        list(trainer.steps())
        new = embed_new_items(trainer.model, "right", corpus.right, {"words": bags("words", "word", words())})
        expected = torch.where(drop[:, None], new, trainer.engine.embed("right", items))
        torch.testing.assert_close(trainer.engine.embed("right", items, drop), expected)
        assert (new - trainer.engine.embed("right", items)).abs().max() > 0.01


def test_the_penalty_counts_dropped_ids_as_absent(make_config):
    """f_r is the expected number of occurrences, and both engines penalise what a batch holds."""
    corpus = wiki()
    found, bare = row_frequencies(corpus, 0.25, 0.5), row_frequencies(corpus)
    expected = 0.75 * corpus.left_frequency + 0.5 * corpus.right_frequency
    np.testing.assert_allclose(found["page"], expected)
    np.testing.assert_array_equal(found["word"], bare["word"])
    results = []
    for engine in ("plain", "compiled"):
        config = make_config(
            *LINEAR, *DROPPED, "train.l2=0.01", "train.learning_rate=0.02", f"train.engine={engine}"
        )
        trainer = Trainer(config, corpus)
        list(trainer.steps())
        results.append(trainer.model.state_dict())
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], rtol=2e-3, atol=2e-4)


def test_each_step_and_batch_drops_ids_of_its_own(make_config):
    """The loss and the Gramians of three steps, with masks drawn from the streams of their step, side and batch."""
    corpus = wiki()
    trainer = Trainer(make_config(*LINEAR, *DROPPED, "estimator.name=sampling"), corpus)
    sides = (trainer.left, trainer.right)
    steps = trainer.steps()

    def embedded(side, stream, step, items):
        mask = step_generator(0, stream, step).random(len(items)) < side.id_dropout
        return trainer.engine.embed(side.name, items, torch.from_numpy(mask))

    for step in range(3):
        pairs, gramians, rows = trainer.pair_stream.batch(step), [], []
        for side, ids, ids_of_gramian in zip(
            sides,
            (Stream.LEFT_IDS, Stream.RIGHT_IDS),
            (Stream.LEFT_GRAMIAN_IDS, Stream.RIGHT_GRAMIAN_IDS),
            strict=True,
        ):
            rows.append(embedded(side, ids, step, side.population.pair_items[pairs].long()))
            drawn, _ = side.population.draw(step_generator(0, side.stream, step), 32)
            batch = embedded(side, ids_of_gramian, step, drawn)
            gramians.append(batch.T @ batch / 32)
        loss = ((rows[0] * rows[1]).sum(1) - 1).square().mean()
        assert next(steps).loss == pytest.approx(float(loss), rel=1e-5)
        torch.testing.assert_close(trainer.left_estimator.gramian, gramians[0])
        torch.testing.assert_close(trainer.right_estimator.gramian, gramians[1])


@pytest.mark.parametrize("method", ["sampling", "sogram", "sagram", "control-variate"])
@pytest.mark.parametrize("towers", [LINEAR, HIDDEN])
def test_engines_agree_under_dropout(make_config, towers, method):
    corpus, results = wiki(), []
    settings = (*towers, *DROPPED, f"estimator.name={method}", "train.learning_rate=0.02")
    for engine in ("plain", "compiled"):
        trainer = Trainer(make_config(*settings, f"train.engine={engine}"), corpus)
        results.append(([r.loss for r in trainer.steps()], trainer.model.state_dict()))
    assert results[0][0] == pytest.approx(results[1][0], rel=2e-4)
    for name, value in results[0][1].items():
        torch.testing.assert_close(value, results[1][1][name], rtol=2e-3, atol=2e-4)


def test_a_step_without_ids_moves_no_id(make_config):
    """All ids dropped but by chance none: ids of the batch stay, and words move."""
    corpus = wiki()
    trainer = Trainer(
        make_config(*LINEAR, "train.id_dropout_left=0.999999", "train.id_dropout_right=0.999999"), corpus
    )
    before = {name: table.detach().clone() for name, table in trainer.model.named_tables().items()}
    next(trainer.steps())
    after = trainer.model.named_tables()
    assert torch.equal(before["table:page"], after["table:page"])
    assert not torch.equal(before["table:word"], after["table:word"])


def test_gramian_batches_with_dropout_are_unbiased_for_the_mixture(make_config):
    """E[u ⊗ u] over draws and masks = (1 − p) G + p G₀, with G₀ of the items without their ids; and it repeats."""
    corpus = wiki()
    side = Trainer(
        make_config(*LINEAR, *DROPPED, "model.embedding_dim=3", "model.table_scale=1"), corpus
    ).right
    weights = side.population.item_weights.double()
    items = torch.arange(COUNT)

    def gramian(rows):
        return torch.einsum("i,ia,ib->ab", weights, rows.double(), rows.double())

    whole = gramian(side.embed(items))
    bare = gramian(side.embed(items, torch.ones(COUNT, dtype=torch.bool)))
    expected = 0.4 * whole + 0.6 * bare
    draws = torch.stack([
        torch.einsum("ia,ib->ab", u, u) / len(u)
        for step in range(400)
        for u in [side.draw(0, side.stream, step, 256).embeddings.double()]
    ])  # fmt: skip
    spread = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - expected).abs() < 4.5 * spread).all()
    assert ((draws.mean(0) - whole).abs() > 4.5 * spread).any()
    assert torch.equal(
        side.draw(0, side.stream, 7, 64).embeddings, side.draw(0, side.stream, 7, 64).embeddings
    )
    again, other = side.without_id(0, 5, 4096), side.without_id(0, 6, 4096)
    assert torch.equal(again, side.without_id(0, 5, 4096)) and not torch.equal(again, other)
    assert abs(again.double().mean() - 0.6) < 5 * (0.6 * 0.4 / 4096) ** 0.5


def test_unseen_items_have_no_weight_at_any_gamma(make_config):
    corpus = wiki()
    for gamma in (0, 0.5, 1):
        trainer = Trainer(make_config(f"train.gamma_left={gamma}", f"train.gamma_right={gamma}"), corpus)
        assert not trainer.right.population.item_weights[corpus.right_frequency == 0].any()


def test_what_cannot_drop_ids_is_refused(make_config, corpus):
    with pytest.raises(
        ConfigError, match=r"id_dropout_left is 0.3, but the left items of .* have no feature"
    ):
        Trainer(make_config(*DROPPED), corpus)  # the synthetic corpus's left items have only ids
    with pytest.raises(ConfigError, match="estimator.name: exact embeds every item with its id"):
        make_config(*DROPPED, "estimator.name=exact")
    with pytest.raises(ConfigError, match="estimator.start: exact embeds every item with its id"):
        make_config(*DROPPED, "estimator.start=exact")
    with pytest.raises(ConfigError, match="train.engine: static draws nothing in a step"):
        Trainer(make_config("train.id_dropout_right=0.5", "train.engine=static"), wiki())


def test_new_items_that_do_not_fit_are_refused(make_config):
    corpus = wiki()
    model = make_model(make_config(), corpus)
    good = bags("words", "word", [[1], [2, 3]])

    def embed(**features):
        return embed_new_items(model, "right", corpus.right, features)

    assert embed(words=good).shape == (2, 8)
    for wrong, reason in [
        ({"page": one_hot("page", "page", np.arange(2))}, "page: no feature of a page; it has words"),
        ({"words": bags("words", "word", [[20]])}, "outside of 0 … 19"),
        ({}, "give at least one feature"),
        ({"words": bags("words", "word", [])}, "at least one new page"),
    ]:
        with pytest.raises(ValueError, match=reason):
            embed(**wrong)
