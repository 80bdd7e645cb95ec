"""The evaluation protocol: MAP by its definition, candidates, training positives, and no trace in training."""

import numpy as np
import pytest
import torch
from helpers import leaves, timeless

from gramrun import runs
from gramrun.config import EvaluationSection
from gramrun.evaluation import protocol, ranking
from gramrun.evaluation.protocol import (
    evaluate_embeddings,
    evaluate_model,
    evaluate_popularity,
    popularity_embeddings,
)
from gramrun.model.build import embed_all
from gramrun.runs import checkpoints
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer


def one_hot_scores(scores):
    """Embeddings whose inner products are any given score matrix."""
    return torch.eye(scores.shape[0]), torch.from_numpy(scores.T.astype(np.float32))


def known(corpus, split):
    matrix = np.zeros((corpus.left.items, corpus.right.items), dtype=bool)
    matrix[corpus.pairs(split).left, corpus.pairs(split).right] = True
    return matrix


def test_the_perfect_model_scores_one_and_the_worst_scores_nothing(corpus):
    for split in ("validation", "train"):
        truth = known(corpus, split).astype(float)
        best = evaluate_embeddings(*one_hot_scores(truth), corpus, split, EvaluationSection())
        worst = evaluate_embeddings(*one_hot_scores(-truth), corpus, split, EvaluationSection())
        assert best["map@10"] == best["ndcg@10"] == best["recall@100"] == 1
        assert worst["map@10"] < 0.01


def test_embeddings_that_are_all_0_have_no_effective_rank(corpus):
    nothing = (torch.zeros(side.items, 3) for side in (corpus.left, corpus.right))
    found = evaluate_embeddings(*nothing, corpus, "validation", EvaluationSection())
    assert found["effective_rank"] == [None, None]


def test_training_positives_are_taken_out_of_validation(corpus):
    """A model that puts every training positive on top loses nothing on the validation split."""
    truth = known(corpus, "validation") + 2.0 * known(corpus, "train")
    assert (
        evaluate_embeddings(*one_hot_scores(truth), corpus, "validation", EvaluationSection())["map@10"] == 1
    )


def test_map_by_hand(corpus):
    """All left items, scores by seeded noise, MAP@10 by its definition in plain Python."""
    scores = np.random.default_rng(0).normal(size=(corpus.left.items, corpus.right.items))
    relevant, excluded = known(corpus, "validation"), known(corpus, "train")
    precisions = []
    for x in range(corpus.left.items):
        if not relevant[x].any():
            continue
        order = sorted(
            (y for y in range(corpus.right.items) if not excluded[x, y]), key=lambda y: -scores[x, y]
        )
        hits, total = 0, 0.0
        for rank, y in enumerate(order[:10], start=1):
            if relevant[x, y]:
                hits += 1
                total += hits / rank
        precisions.append(total / min(10, relevant[x].sum()))
    result = evaluate_embeddings(*one_hot_scores(scores), corpus, "validation", EvaluationSection())
    assert result["map@10"] == pytest.approx(np.mean(precisions))
    assert result["left_items"] == len(precisions)


def test_candidates_are_shared_seeded_and_joined_by_the_own_positives(corpus):
    truth = known(corpus, "validation").astype(float)
    few = EvaluationSection(candidates=5)
    result = evaluate_embeddings(*one_hot_scores(truth), corpus, "validation", few)
    assert (result["candidates"], result["full"], result["map@10"]) == (5, False, 1)
    again = evaluate_embeddings(*one_hot_scores(-truth), corpus, "validation", few)
    assert again["candidate_hash"] == result["candidate_hash"]
    other = evaluate_embeddings(
        *one_hot_scores(truth), corpus, "validation", EvaluationSection(candidates=5, seed=1)
    )
    assert other["candidate_hash"] != result["candidate_hash"]


def test_sampled_left_items_keep_the_candidates(corpus):
    scores = one_hot_scores(np.random.default_rng(2).normal(size=(corpus.left.items, corpus.right.items)))
    everyone = evaluate_embeddings(*scores, corpus, "validation", EvaluationSection(candidates=40))
    some = evaluate_embeddings(*scores, corpus, "validation", EvaluationSection(candidates=40, left_items=50))
    assert (some["left_items"], everyone["left_items"] > 50) == (50, True)
    assert some["candidate_hash"] == everyone["candidate_hash"]
    assert some["map@10"] != everyone["map@10"]
    settings = [EvaluationSection(left_items=50, seed=seed) for seed in (0, 1)]  # all candidates
    first, second = (evaluate_embeddings(*scores, corpus, "validation", s)["map@10"] for s in settings)
    assert first != second


def test_results_do_not_depend_on_how_much_is_read_at_once(corpus, monkeypatch):
    scores = one_hot_scores(np.random.default_rng(2).normal(size=(corpus.left.items, corpus.right.items)))

    def results():
        return [
            evaluate_embeddings(*scores, corpus, split, EvaluationSection(candidates=30))
            for split in ("validation", "train")
        ]

    expected = results()
    for module, name, size in (
        (ranking, "_PAIRS_READ", 7),
        (ranking, "_PAIRS_AT_ONCE", 5),
        (protocol, "_ROWS_READ", 3),
    ):
        monkeypatch.setattr(module, name, size)
    for one, other in zip(results(), expected, strict=True):
        assert one.pop("average_precision").tolist() == other.pop("average_precision").tolist()
        assert one.pop("effective_rank") == pytest.approx(other.pop("effective_rank"))
        assert timeless(one) == timeless(other)


def test_popularity_recommends_by_training_frequency(corpus):
    left, right = popularity_embeddings(3, np.array([2, 0, 5], dtype=np.int32))
    assert (left @ right.T).tolist() == [[2, 0, 5]] * 3
    frequency = np.bincount(corpus.train.right, minlength=corpus.right.items)
    scores = np.tile(frequency, (corpus.left.items, 1))
    expected = evaluate_embeddings(*one_hot_scores(scores), corpus, "validation", EvaluationSection())
    got = evaluate_popularity(corpus, "validation", EvaluationSection())
    assert got["map@10"] == expected["map@10"]


def items_embedded(model, monkeypatch):
    """The items that each tower embeds from now on, in order."""
    seen = {"left": [], "right": []}
    for side, items in seen.items():
        embed = getattr(model, f"{side}_embeddings")
        monkeypatch.setattr(
            model,
            f"{side}_embeddings",
            lambda x, items=items, embed=embed: items.extend(x.tolist()) or embed(x),
        )
    return seen


@pytest.mark.parametrize(
    ("settings", "splits"),
    [
        ({}, ["validation"]),
        ({"candidates": 30, "left_items": 20}, ["validation", "train"]),
    ],
)
def test_a_model_is_measured_as_its_embeddings_are(make_config, corpus, monkeypatch, settings, splits):
    """With each item embedded at most once, and no others than left items, candidates and positives."""
    trainer = Trainer(make_config("model.hidden=[6]"), corpus)
    for _ in trainer.steps():
        pass
    section = EvaluationSection(**settings)
    embeddings = embed_all(trainer.model, corpus)
    seen = items_embedded(trainer.model, monkeypatch)
    results = evaluate_model(trainer.model, corpus, splits, section)
    assert list(results) == splits
    for split, result in results.items():
        expected = evaluate_embeddings(*embeddings, corpus, split, section)
        for name in expected.keys() - {"seconds"}:
            if name == "effective_rank":  # products of other shapes round differently
                assert result[name] == pytest.approx(expected[name], rel=1e-6)
            else:
                np.testing.assert_array_equal(result[name], expected[name])
    for items in seen.values():
        assert items == sorted(set(items))
    if settings.get("left_items"):
        assert len(seen["left"]) <= 20 * len(splits)
        assert len(seen["right"]) < corpus.right.items
    else:
        assert set(seen["left"]) == {x for split in splits for x in corpus.pairs(split).left.tolist()}


@pytest.mark.parametrize(
    "overrides",
    [
        ["estimator.batch=previous", "estimator.gramian_batch_size=64", "train.optimizer=adam"],
        ["estimator.name=control-variate", "model.hidden=[6]"],
    ],
)
def test_training_watched_every_three_steps_equals_training_unwatched(
    make_config, corpus, tmp_path, overrides
):
    """Parameters, optimizer, estimators and losses, bit for bit; and the streams that are everyone's."""
    states = []
    for every in (3, 0):
        config = make_config(*overrides, f"evaluation.every={every}", "train.checkpoint_every=20")
        run = runs.create(tmp_path / str(every), "train", config, corpus.content_hash)
        torch.manual_seed(5)
        np.random.seed(5)
        fit(run, Trainer(config, corpus), corpus)
        state = checkpoints.load_newest(run)["trainer"]
        del state["train_seconds"]
        states.append((state, torch.rand(3), np.random.rand(3).tolist()))
        measured = [(r["step"], r["map@10"]) for r in run.metrics()]
        assert [step for step, _ in measured] == ([*range(3, 40, 3), 40] if every else [40])
        states[-1] += (measured[-1],)
    assert dict(leaves(states[0])) == dict(leaves(states[1]))
