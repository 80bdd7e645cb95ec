"""`gramrun.fit` and `gramrun.load`: the same training as the command line's, and recommendations by hand."""

import gc
import json
import pickle
import subprocess
import sys
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import gramrun
from gramrun.base.errors import RunError
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data import shards
from gramrun.data.in_memory import read_pairs
from gramrun.data.shards import open_corpus
from gramrun.training import recommender
from gramrun.training.trainer import Trainer

USERS, ITEMS = 40, 25
SMALL = {"embedding_dim": 6, "epochs": 3, "progress": False}
MATRIX = sp.random_array((USERS, ITEMS), density=0.2, format="csr", rng=np.random.default_rng(0))
GENRES = pd.DataFrame(
    {"genre": [[f"g{i % 4}", f"g{i % 3}"] for i in range(ITEMS)], "year": np.arange(ITEMS) % 5}
)


@pytest.fixture(scope="module")
def model():
    return gramrun.fit(MATRIX, right_features=GENRES, validation_fraction=0.2, **SMALL)


def same(first, second):
    assert (first.left_embeddings == second.left_embeddings).all()
    assert (first.right_embeddings == second.right_embeddings).all()


def test_importing_costs_nothing():
    code = "import sys, gramrun; assert not {'torch', 'pandas', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert callable(gramrun.fit)
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = gramrun.fitt


@pytest.mark.parametrize("features", [None, GENRES])
def test_it_trains_as_the_command_line_does(tmp_path, features):
    model = gramrun.fit(
        MATRIX, right_features=features, validation_fraction=0.2, gravity=7, hidden=[9], **SMALL
    )
    path = model.save(tmp_path / "run")
    corpus = open_corpus(path / "corpus")
    trainer = Trainer(load_config(RunConfig, path / "config.yaml"), corpus)
    for _ in trainer.steps():
        pass
    assert trainer.config.train.gravity == 7 and trainer.config.model.hidden == (9,)
    with torch.no_grad():
        again = trainer.model.right_embeddings(torch.arange(ITEMS)).numpy()
    assert (again == model.right_embeddings).all()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"hidden": [4]}, {"dense_learning_rate": 0.001}),
        ({"hidden": [4], "learning_rate": 0.05}, {"dense_learning_rate": 0.0005}),
        ({"hidden": [4], "optimizer": "adam"}, {"learning_rate": 0.01, "dense_learning_rate": 0.001}),
        ({"objective": "taylor-softmax"}, {"gravity": 1}),
        ({"objective": "taylor-softmax", "gravity": 3}, {"gravity": 3}),
    ],
)
def test_defaults_suit_what_is_asked_for(asked, expected):
    train = gramrun.fit(MATRIX, **{**SMALL, "epochs": 1}, **asked).config.train
    assert {name: getattr(train, name) for name in expected} == pytest.approx(expected)


def test_debiasing_is_dropped_only_where_the_start_is_corrected():
    for asked, expected in (({1: 0.1}, True), ("decaying", False), ("constant", True)):
        own = gramrun.fit(MATRIX, **{**SMALL, "epochs": 1}, alpha_schedule=asked).config.estimator
        assert own.debias == expected


def test_forms_of_the_same_pairs_train_to_the_same_bits():
    coo = MATRIX.tocoo()
    frame = pd.DataFrame({"left": coo.row, "right": coo.col}).sample(frac=1, random_state=1)
    assert set(frame["left"]) == set(range(USERS)) and set(frame["right"]) == set(range(ITEMS))
    models = [gramrun.fit(pairs, **SMALL) for pairs in (MATRIX, frame, (coo.row, coo.col))]
    same(models[0], models[1])
    same(models[0], models[2])
    assert models[0].left_embeddings.dtype == np.float32


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_recommendations_are_the_greatest_products(model, monkeypatch, exclude_seen):
    monkeypatch.setattr(recommender, "_SCORES_AT_ONCE", 2 * ITEMS)  # two left items at once
    asked = [7, 3, 39, 0, 3]
    ids, scores = model.recommend(asked, n=ITEMS, exclude_seen=exclude_seen)
    assert ids.shape == scores.shape == (5, ITEMS)
    products = model.left_embeddings.astype(np.float64) @ model.right_embeddings.T.astype(np.float64)
    train = model._corpus.train
    for user, row, found in zip(asked, ids, scores, strict=True):
        seen = set(train.right[train.left == user].tolist()) if exclude_seen else set()
        wanted = sorted(set(range(ITEMS)) - seen, key=lambda item: -products[user, item])
        assert row[: len(wanted)].tolist() == wanted
        np.testing.assert_allclose(found[: len(wanted)], products[user, wanted], rtol=1e-5, atol=1e-6)
        assert set(row[len(wanted) :].tolist()) == seen and np.isneginf(found[len(wanted) :]).all()
    one, _ = model.recommend(7, n=ITEMS, exclude_seen=exclude_seen)
    assert one.tolist() == ids[0, np.isfinite(scores[0])].tolist()


def test_similar_items_are_those_of_greatest_cosine(model):
    ids, scores = model.similar_items([4, 0], n=3)
    v = model.right_embeddings / np.linalg.norm(model.right_embeddings, axis=1, keepdims=True)
    for item, row, found in zip([4, 0], ids, scores, strict=True):
        assert row.tolist() == np.argsort(-(v @ v[item]))[:3].tolist()
        assert row[0] == item and found[0] == pytest.approx(1)


@pytest.mark.parametrize("hidden", [[], [9]])
def test_unseen_items_are_embedded_by_their_features_alone(hidden):
    model = gramrun.fit(MATRIX, right_features=GENRES, hidden=hidden, **SMALL)
    new = GENRES[["year", "genre"]].iloc[:4].assign(year=[0, 1, 77, 3])  # no year 77 in training
    found = model.embed_right(new)
    assert found.shape == (4, 6) and found.dtype == np.float32
    towers = model._model
    genre, year, own = (
        towers.tables[f"table:{name}"].weight for name in ("right%2Egenre", "right%2Eyear", "right")
    )
    for item in range(4):
        bags = [
            torch.zeros(own.shape[1]),
            sum(genre[int(name[1:])] for name in set(GENRES["genre"][item])),
            torch.zeros(own.shape[1]) if item == 2 else year[item],
        ]
        inputs = torch.cat(bags) if hidden else sum(bags)
        expected = towers.right.dense(inputs[None])[0].detach().numpy()
        np.testing.assert_allclose(found[item], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [str, lambda i: 10 * i - 7])
def test_a_saved_model_comes_back_whole(tmp_path, request, kind):
    coo = MATRIX.tocoo()
    pairs = pd.DataFrame({"left": [kind(i) for i in coo.row], "right": [kind(i) for i in coo.col]})
    model = gramrun.fit(pairs, right_features=GENRES.set_axis([kind(i) for i in range(ITEMS)]),
                        validation_fraction=0.2, **SMALL)  # fmt: skip
    path = model.save(tmp_path / "run")
    again = gramrun.load(path)
    same(model, again)
    assert list(again.left_ids) == list(model.left_ids) and list(again.right_ids) == list(model.right_ids)
    assert again.recommend(kind(3))[0].tolist() == model.recommend(kind(3))[0].tolist()
    assert (again.embed_right(GENRES) == model.embed_right(GENRES)).all()
    assert again.evaluate()["map@10"] == model.evaluate()["map@10"]
    run = request.getfixturevalue("gramrun")  # the command; its name here is the package's
    for command in (["evaluate", path], ["neighbors", path, str(kind(2))], ["train", "--output", path, "--resume"],
                    ["export", path, "--output", tmp_path / "v.parquet"]):  # fmt: skip
        code, _, error = run(*command)
        assert code == 0, error
    assert len(pd.read_parquet(tmp_path / "v.parquet")) == ITEMS
    with pytest.raises(ValueError, match="copy its run directory"):
        again.save(tmp_path / "other")


def test_a_model_can_be_pickled_and_torch_draws_on_as_before(tmp_path):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    model = gramrun.fit(MATRIX, right_features=GENRES, hidden=[4], **SMALL)
    assert torch.rand(1) == expected
    again = pickle.loads(pickle.dumps(model))
    same(model, again)
    assert (again.embed_right(GENRES) == model.embed_right(GENRES)).all()
    with pytest.raises(ValueError, match="no training state"):
        again.save(tmp_path / "run")
    model.save(tmp_path / "run")


def test_saving_is_whole_or_not_at_all(model, tmp_path):
    path = model.save(tmp_path / "run")
    before = sorted(path.rglob("*"))
    with pytest.raises(ValueError, match="exists already; choose another path, or replace it: force=True"):
        model.save(path)
    assert model.save(path, force=True) == path and sorted(path.rglob("*")) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="a folder of this path is a file"):
        model.save(tmp_path / "file" / "run")
    assert {entry.name for entry in tmp_path.iterdir()} == {"run", "file"}


def test_the_record_of_a_saved_run_is_over_all_its_steps(tmp_path):
    model = gramrun.fit(MATRIX, **SMALL)
    losses = [record.loss for record in Trainer(model.config, model._corpus).steps()]
    model.save(tmp_path / "run")
    record = json.loads((tmp_path / "run/metrics.jsonl").read_text())
    assert record["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["seconds"] >= record["seconds"] >= record["train_seconds"] > 0


def test_a_model_that_its_last_step_ruined_is_not_returned():
    with pytest.raises(RunError, match="is not finite; lower train.learning_rate"):
        gramrun.fit(MATRIX, steps=1, learning_rate=1e39, progress=False)


def test_numbers_of_numpy_are_those_of_python(tmp_path):
    given = {"seed": 3, "validation_fraction": 0.25, "hidden": [8, 4], "learning_rate": 0.125}
    numpy = {"seed": np.int64(3), "validation_fraction": np.float32(0.25), "hidden": np.array([8, 4])}
    nested = {**given, "hidden": [np.int64(8), np.int32(4)]}
    model = gramrun.fit(MATRIX, **SMALL, **numpy, learning_rate=np.float32(0.125))
    same(model, gramrun.fit(MATRIX, **SMALL, **given))
    same(model, gramrun.fit(MATRIX, **SMALL, **nested))
    same(model, gramrun.load(model.save(tmp_path / "run")))


def test_a_category_that_is_given_twice_counts_once(model):
    once, twice = (
        model.embed_right(pd.DataFrame({"genre": [g], "year": [1]})) for g in (["g1"], ["g1", "g1"])
    )
    assert (once == twice).all()


def test_categories_that_no_row_has_and_paths_as_settings(tmp_path):
    years = pd.DataFrame({"year": pd.Categorical([1994.0] * ITEMS, categories=[1994.0, 0.5])})
    model = gramrun.fit(MATRIX, right_features=years, estimator="sagram", cache_folder=tmp_path, **SMALL)
    assert model.config.estimator.cache_folder == tmp_path


def test_a_saved_run_that_moved_goes_on_and_keeps_its_corpus(request, tmp_path):
    command = request.getfixturevalue("gramrun")  # in tmp_path
    gramrun.fit(MATRIX, **SMALL).save("first").rename("run")
    code, _, err = command("train", "--output", "run", "--resume", "--set", "train.epochs=4")
    assert code == 0, err
    (tmp_path / "run").rename("first")
    again = ("train", "--config", "first/config.yaml", "--output", "first", "--force")
    code, _, err = command(*again)
    assert (code, "holds the corpus of this run" in err) == (2, True), err
    assert len(gramrun.load("first").left_ids) == USERS


def test_a_column_of_the_raw_data_that_is_called_id_is_no_identifier(request, tmp_path):
    command = request.getfixturevalue("gramrun")  # in tmp_path
    (tmp_path / "raw").mkdir()
    pairs = "".join(f"u{i % 7}\ti{i % 5}\n" for i in range(35))
    (tmp_path / "raw/own.inter").write_text("user_id:token\titem_id:token\n" + pairs)
    items = "".join(f"i{i}\tx{i}\tk{i}\n" for i in range(5))
    (tmp_path / "raw/own.item").write_text("item_id:token\tid:token\tkeys:token\n" + items)
    code, _, err = command("prepare", "atomic", "--source", "raw", "--output", "data")
    assert code == 0, err
    small = ("data.path=data", "train.steps=2", "train.batch_size=8", "estimator.gramian_batch_size=8")
    chosen = [part for x in small for part in ("--set", x)]
    code, _, err = command("train", "--config", "movielens-1m/sogram", *chosen, "--output", "run")
    assert code == 0, err
    assert gramrun.load("run").right_ids.tolist() == ["i0", "i1", "i2", "i3", "i4"]


def test_a_saved_run_can_move(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    model = gramrun.fit(MATRIX, **SMALL)
    model.save("first")
    (tmp_path / "first").rename(tmp_path / "second")
    same(model, gramrun.load("second"))
    code, out, error = request.getfixturevalue("gramrun")("recommend", "second", "3", "--json")
    assert code == 0, error
    assert [int(row["id"]) for row in json.loads(out)["neighbors"]] == model.recommend(3)[0].tolist()


def test_identifiers_may_come_as_pandas_gives_them():
    coo = MATRIX.tocoo()
    frame = pd.DataFrame({"left": coo.row, "right": coo.col, "value": 3})  # nobody asked for values
    plain = gramrun.fit(frame, **SMALL)
    for kind in ("category", "Int64", "string"):
        model = gramrun.fit(frame.astype({"left": kind}), **SMALL)
        labels = frame["left"].astype(kind).unique()[:3]
        ids, _ = model.recommend(labels, n=4)
        assert (ids == model.recommend(list(labels), n=4)[0]).all() and ids.shape == (3, 4)
    assert (plain.recommend(range(3))[0] == plain.recommend([0, 1, 2])[0]).all()
    assert plain.recommend(3, n=100, exclude_seen=False)[0].shape == (ITEMS,)
    same(plain, gramrun.fit(frame, **{**SMALL, "embedding_dim": np.int64(6)}))


def test_what_a_setting_excludes_is_no_default():
    """SOGram's defaults correct a start from 0; the static engine has no L2."""
    for chosen, debias in (("decaying", False), ("constant", True)):
        assert gramrun.fit(MATRIX, alpha_schedule=chosen, **SMALL).config.estimator.debias == debias
    assert gramrun.fit(MATRIX, engine="static", **SMALL).config.train.l2 == 0
    assert np.isfinite(gramrun.fit(MATRIX, optimizer="sgd", hidden=[64], **SMALL).left_embeddings).all()


def test_a_run_of_the_command_line_embeds_new_items(request, tmp_path):
    """Its vocabularies have names of their own, as those of two sides that share one."""
    given = read_pairs(MATRIX, right_features=GENRES, with_values=False).corpus
    own = {f"right.{name}": name for name in GENRES}
    features = [replace(f, vocabulary=own.get(f.vocabulary, f.vocabulary)) for f in given.right.features]
    vocabularies = {own.get(name, name): table for name, table in given.vocabularies.items()}
    corpus = replace(given, right=replace(given.right, features=tuple(features)), vocabularies=vocabularies)
    shards.write_corpus(corpus, tmp_path / "data", validation_fraction=0.2, split_seed=0, origin={})
    batches = "train.batch_size=16", "estimator.gramian_batch_size=16"
    chosen = [part for x in ("data.path=data", "train.steps=5", *batches) for part in ("--set", x)]
    command = request.getfixturevalue("gramrun")  # in tmp_path
    code, _, err = command("train", "--config", "movielens-1m/sogram", *chosen, "--output", "run")
    assert code == 0, err
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"from Python: data=\), or prepare it again"):
        gramrun.load("run")
    trained = gramrun.load("run", data="moved")
    rows = trained.embed_right(GENRES.iloc[[3, 3]])
    assert rows.shape == (2, 35) and (rows[0] == rows[1]).all() and rows.any()


def test_items_are_held_out_and_ranked_among_themselves():
    model = gramrun.fit(
        MATRIX, right_features=GENRES, validation_fraction=0.3, split_by="right-items", **SMALL
    )
    trained = set(model._corpus.train.right)
    assert not trained & set(model._corpus.validation.right) and len(trained) < ITEMS
    every, unseen = model.evaluate(), model.evaluate(among="unseen")
    assert every["candidates"] == ITEMS and unseen["candidates"] == ITEMS - len(trained)


def test_all_pairs_train_where_none_are_held_out(tmp_path):
    model = gramrun.fit(MATRIX, **SMALL)
    assert len(model._corpus.train) == MATRIX.nnz
    assert model.evaluate("train")["map@10"] > 0
    with pytest.raises(ValueError, match="has no validation pairs"):
        model.evaluate()
    again = gramrun.load(model.save(tmp_path / "run"))
    same(model, again)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: gramrun.fit(MATRIX, gravty=3), "gravty=3: unknown key gravty; did you mean train.gravity"),
        (lambda m: gramrun.fit(MATRIX, gravity=-1), "train.gravity"),
        (lambda m: gramrun.fit(MATRIX, name="sogram"), "name is ambiguous: give one of estimator.name"),
        (lambda m: gramrun.fit(MATRIX, estimator="none"), "estimator.name: none goes with"),
        (lambda m: gramrun.fit(np.eye(3)), "pairs: must be a scipy.sparse matrix"),
        (lambda m: gramrun.fit([(1, 2), (3, 4)]), "pairs: must be a scipy.sparse matrix"),
        (lambda m: gramrun.fit((np.eye(3), np.eye(3))), "pairs: two arrays must have one dimension each"),
        (lambda m: gramrun.fit([[1, 2], [3, 4]]), "pairs: must be a scipy.sparse matrix"),
        (lambda m: gramrun.fit(({1, 2}, {3, 4})), "pairs: must be a scipy.sparse matrix"),
        (lambda m: gramrun.fit(("ab", "cd")), "pairs: must be a scipy.sparse matrix"),
        (lambda m: gramrun.fit(MATRIX, **{"data.path": "x"}), "data.path: fit does not read it"),
        (lambda m: gramrun.fit(MATRIX, train={"gravity": 3}), "train is a section; give its keys"),
        (
            lambda m: gramrun.fit(MATRIX, gravity=3, **{"train.gravity": 4}),
            "train.gravity is given twice",
        ),
        (lambda m: gramrun.fit(MATRIX, epochs=3, steps=3), "give one of epochs and steps"),
        (lambda m: gramrun.fit(MATRIX, **{"train.seed": 3}), "train.seed: give it as seed"),
        (lambda m: gramrun.fit(MATRIX, inner_products=9), "evaluation.inner_products: fit does not read it"),
        (lambda m: gramrun.fit(MATRIX, checkpoints_kept=5), "train.checkpoints_kept: fit does not read it"),
        (lambda m: gramrun.fit(MATRIX, epochs=None), "^train: give exactly one of train.epochs"),
        (lambda m: gramrun.fit(((0, 1), (0, 1)), target="value"), "pairs: must be a scipy.sparse matrix"),
        (lambda m: gramrun.fit(([0, 1], [0, 1]), target="value"), "pairs: target='value' needs values"),
        (
            lambda m: gramrun.fit(([0], [1]), **SMALL).evaluate(),
            "no validation pairs; give fit a validation_fr",
        ),
        (lambda m: m.recommend([1, 99]), "left_ids: 99 is not known to the model"),
        (lambda m: m.recommend("x"), "left_ids: 'x' is not known to the model"),
        (lambda m: m.similar_items([-1]), "right_ids: -1 is not known"),
        (
            lambda m: gramrun.fit((["1", "2"], ["3", "4"]), **SMALL).recommend(1),
            "left_ids: 1 is not known to the model; its ids are text: '1'",
        ),
        (lambda m: m.recommend([1], n=0), "n: must be a whole number from 1, not 0"),
        (lambda m: m.recommend([1], n=True), "n: must be a whole number from 1, not True"),
        (lambda m: m.recommend([[1]]), "left_ids: must be identifiers, or one of them"),
        (lambda m: m.recommend((0, 1)), r"left_ids: \(0, 1\) is not known"),
        (lambda m: m.evaluate("test"), "split: must be validation or train"),
        (lambda m: m.evaluate(among="new"), "among: must be all or unseen"),
        (lambda m: m.evaluate(among="unseen"), "unseen"),
        (
            lambda m: gramrun.fit(MATRIX, seed=-1, validation_fraction=0.2),
            "seed: must be a whole number from 0",
        ),
        (lambda m: gramrun.fit(MATRIX, seed=None), "seed: must be a whole number from 0"),
        (
            lambda m: gramrun.fit(sp.coo_array(([1.0], ([0], [10**12])), shape=(1, 10**13))),
            "10,000,000,000,000 columns of pairs .* number items from 0",
        ),
        (lambda m: gramrun.fit(MATRIX, split_by="items"), "split_by: must be one of pairs, "),
        (lambda m: gramrun.fit(MATRIX, gravity={1}), "is no value of a setting"),
        (lambda m: gramrun.fit(MATRIX, estimator=["a"]), "estimator.name"),
        (
            lambda m: gramrun.fit(MATRIX, validation_fraction=1.0),
            "validation_fraction: must be from 0 to below 1",
        ),
        (lambda m: m.embed_left(GENRES), "the model has no left features; give fit left_features"),
        (lambda m: m.embed_right(GENRES[["year"]]), "must have what the model was trained with: genre, year"),
        (lambda m: m.embed_right(GENRES[:0]), "right_features: holds no item"),
        (
            lambda m: m.embed_right(None),
            "right_features: must be a DataFrame or a sparse matrix, not a NoneType",
        ),
        (lambda m: m.embed_right(np.float64(3)), "right_features: must be a DataFrame or a sparse matrix"),
        (lambda m: gramrun.fit(-MATRIX), "pairs: the value of 0, 18 is -0.485.*, but each is a pair"),
        (lambda m: gramrun.load("nowhere"), "nowhere: not a run directory"),
    ],
)
def test_bad_input_is_a_value_error_of_one_line(model, call, message):
    with pytest.raises(ValueError, match=message) as refused:
        call(model)
    assert "\n" not in str(refused.value)


def test_a_model_is_freed_with_the_last_reference_to_it():
    gc.disable()
    try:
        model = gramrun.fit(MATRIX, **SMALL)
        tables = weakref.ref(model._model)
        del model
        assert tables() is None
    finally:
        gc.enable()
