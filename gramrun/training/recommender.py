"""Train from Python and recommend: ``gramrun.fit`` and ``gramrun.load``.

    import gramrun
    model = gramrun.fit(pairs)                              # a scipy.sparse matrix, a DataFrame or two arrays
    ids, scores = model.recommend(left_ids, n=10)

It trains as ``gramrun train`` does, in memory (`gramrun.training`). ``save`` writes a run directory that
every command reads.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from tqdm.auto import tqdm

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError, one_line
from gramrun.base.files import new_folder
from gramrun.base.processes import SINGLE_PROCESS
from gramrun.config import RunConfig
from gramrun.config.loading import keys_of, load_config
from gramrun.config.prepare import SplitBy
from gramrun.data import shards
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.data.in_memory import ID, encode, read_pairs
from gramrun.data.split import split_corpus
from gramrun.evaluation.protocol import Among, evaluate_model
from gramrun.evaluation.ranking import ItemSets
from gramrun.evaluation.trained import SideName, load_model
from gramrun.model.build import embed_new_items
from gramrun.model.towers import TwoTower, embed_in_chunks
from gramrun.runs import checkpoints
from gramrun.runs.directory import CORPUS
from gramrun.training.memory import check_memory
from gramrun.training.trainer import Trainer

IN_MEMORY = "in-memory"
DEFAULTS: dict[str, Any] = {  # chosen on tuning splits of four corpora at once (docs/ranking.md)
    "train.gravity": 80,
    "train.gamma_left": 1,
    "train.gamma_right": 0,
    "train.l2": 0.06,
    "train.learning_rate": 0.1,
    "train.decay_from": 0.3,
}
RATES = {"adam": 0.01, "sparse-adam": 0.01, "sgd": 10.0}  # η of other optimizers
# η of dense layers, as a part of that of the tables: with more, Adagrad's collapse and SGD's diverge.
DENSE = {"adagrad": 0.01, "sgd": 0.001}
UNREAD = (  # settings of runs alone
    "data.", "log.", "gram_error.", "evaluation.every", "evaluation.splits", "evaluation.inner_products",
    "train.checkpoint",
)  # fmt: skip
OWN = {  # settings that are arguments of `fit`
    "model.embedding_dim": "embedding_dim",
    "estimator.name": "estimator",
    "train.epochs": "epochs",
    "train.seed": "seed",
}
ESTIMATOR_DEFAULTS: dict[str, dict[str, Any]] = {"sogram": {"estimator.alpha": 0.1, "estimator.debias": True}}
EPOCHS = 20
LARGEST_BATCH = 1024
_SCORES_AT_ONCE = 1 << 25  # of left items with all right ones; 128 MB


def fit(
    pairs: Any,
    left_features: Any = None,
    right_features: Any = None,
    *,
    embedding_dim: int = 64,
    estimator: str = "sogram",
    epochs: float = EPOCHS,
    seed: int = 0,
    validation_fraction: float = 0.0,
    split_by: SplitBy = "pairs",
    progress: bool = True,
    **settings: Any,
) -> Recommender:
    """Train towers u(x), v(y) on observed pairs and gravity over all pairs.

    The defaults are linear towers with the setting that docs/ranking.md measures on seven corpora: λ = 80,
    γ = 1 on the left and 0 on the right, L2 of 0.06 once a pair, Adagrad with η = 0.1 that falls from the
    sixth of 20 epochs on, batches of 1,024 pairs (all, where there are fewer). A model without features is
    matrix factorisation.

    Args:
        pairs: a scipy.sparse matrix or array (row i and column j are left item i and right item j; stored
            values other than 0 are pairs), a DataFrame with the columns ``left``, ``right`` and perhaps
            ``value``, or two arrays of identifiers. Identifiers may be of any hashable type. Values are the
            targets s where ``target="value"``; otherwise s = 1.
        left_features: None; a DataFrame indexed by left item, whose columns are categories or lists of
            categories; or a scipy.sparse matrix of zeros and ones with a row for each left item.
        right_features: the same for right items.
        embedding_dim: k.
        estimator: of the Gramians: ``sogram``, ``sagram``, ``sampling``, ``exact``, ...
        epochs: passes over the pairs.
        seed: of parameters, batches and the split. Equal input, settings and threads give equal bits.
        validation_fraction: the share of pairs, or of items, that are held out for `Recommender.evaluate`.
        split_by: what is held out: ``pairs``, or whole ``right-items`` or ``left-items``, whose pairs are not
            trained on.
        progress: whether to show a bar.
        settings: keys of the configuration by their last part, as ``gravity=10`` or ``hidden=[256]``, or,
            where several end so, in full: ``**{"train.optimizer": "sparse-adam"}``.

    Raises:
        ValueError: for input or settings that cannot be used, in one line.
        RunError: when training diverges (`gramrun.base.errors`); a lower ``learning_rate`` helps.

    Example:
        >>> import numpy as np, scipy.sparse
        >>> pairs = scipy.sparse.csr_array(np.eye(6) + np.eye(6, k=1))
        >>> model = fit(pairs, embedding_dim=4, epochs=50, progress=False)
        >>> ids, scores = model.recommend([0, 1], n=2)
        >>> ids.shape, scores.dtype
        ((2, 2), dtype('float32'))
    """
    with _value_errors():
        seed, validation_fraction = _python(seed), _python(validation_fraction)
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise InputError(f"seed: must be a whole number from 0 to below 2**32, not {seed!r:.60}")
        if not (isinstance(validation_fraction, float | int) and 0 <= validation_fraction < 1):
            raise InputError(
                f"validation_fraction: must be from 0 to below 1, not {validation_fraction!r:.60}"
            )
        asked = _asked(settings)
        if "train.steps" in asked and epochs != EPOCHS:
            raise InputError("give one of epochs and steps")
        valued = asked.get("train.target") == "value"
        given = read_pairs(pairs, left_features, right_features, with_values=valued)
        if valued and given.corpus.target is None:
            raise InputError("pairs: target='value' needs values: a column value, or a matrix")
        if split_by not in get_args(SplitBy):
            raise InputError(f"split_by: must be one of {', '.join(get_args(SplitBy))}, not {split_by!r:.60}")
        corpus = split_corpus(given.corpus, validation_fraction, seed, split_by)
        batch = min(LARGEST_BATCH, len(corpus.train))
        own = {
            "model.embedding_dim": embedding_dim,
            "estimator.name": estimator,
            "train.epochs": epochs,
            "train.seed": seed,
            "train.batch_size": batch,
            "estimator.gramian_batch_size": batch,
        }
        if not validation_fraction:
            own["evaluation.splits"] = ["train"]
        if "train.steps" in asked:
            own.pop("train.epochs")
        values = {**DEFAULTS, **ESTIMATOR_DEFAULTS.get(str(estimator), {}), **_suited(asked), **own, **asked}
        config = _configuration({**values, "data.path": IN_MEMORY}, asked)
        if config.train.tables != "replicated":
            raise InputError("fit trains in one process; leave train.tables at replicated")
        check_memory(config, corpus, SINGLE_PROCESS)
        trainer = Trainer(config, corpus)
        steps = tqdm(trainer.steps(), config.estimator.label, trainer.total_steps, disable=not progress)
        loss = sum(record.loss for record in steps) / trainer.total_steps
        checkpoints.check_finite(trainer)  # the last step's update
    return Recommender(config, corpus, trainer.model, given.left_ids, given.right_ids, trainer, loss)


def _suited(asked: dict[str, Any]) -> dict[str, Any]:
    """The defaults that follow from the optimizer, the objective and the towers that are asked for."""
    found: dict[str, Any] = {}
    optimizer = str(asked.get("train.optimizer", "adagrad"))
    if optimizer in RATES:
        found["train.learning_rate"] = RATES[optimizer]
    if asked.get("model.hidden"):
        rate = asked.get("train.learning_rate", RATES.get(optimizer, DEFAULTS["train.learning_rate"]))
        if isinstance(rate, int | float):  # else the configuration refuses it
            found["train.dense_learning_rate"] = rate * DENSE.get(optimizer, 0.1)
    if asked.get("train.objective") == "taylor-softmax":
        found["train.gravity"] = 1  # a larger one has its optimum at zero embeddings
    if asked.get("train.engine") == "static":  # which has none
        found["train.l2"] = 0
    start, schedule = asked.get("estimator.start"), asked.get("estimator.alpha_schedule")
    if start == "exact" or schedule == "decaying":  # which correct the zero start themselves
        found["estimator.debias"] = False
    return found


def load(path: str | Path, data: str | Path | None = None) -> Recommender:
    """Load a run directory: of `Recommender.save`, or of ``gramrun train``.

    Identifiers of a run of the command line are the text of the raw data.

    Args:
        path: the run directory.
        data: the corpus, if it has moved since ``gramrun train``, or the working directory is another.

    Raises:
        ValueError: when it is none, has no checkpoint, or is damaged, in one line.
    """
    with _value_errors():
        run = runs.open_run(Path(path).expanduser())
        corpus = runs.corpus_of(run, None if data is None else Path(data).expanduser())
        model, _ = load_model(run, corpus)
    left, right = (_read_ids(corpus, side) for side in (corpus.left, corpus.right))
    return Recommender(run.config, corpus, model, left, right)


class Recommender:
    """A trained model with its items' identifiers; `fit` and `load` make one.

    Attributes:
        config: the resolved configuration.
        left_ids, right_ids: identifiers by item number.
    """

    def __init__(
        self,
        config: RunConfig,
        corpus: SplitCorpus,
        model: TwoTower,
        left_ids: pd.Index,
        right_ids: pd.Index,
        trainer: Trainer | None = None,
        loss: float = float("nan"),
    ) -> None:
        self.config = config
        self.left_ids = left_ids
        self.right_ids = right_ids
        self._corpus = corpus
        self._model = model
        self._trainer = trainer
        self._loss = loss

    def __getstate__(self) -> dict[str, Any]:
        """What pickle and copies take: the model without its trainer, so that `save` needs the original."""
        return {**self.__dict__, "_trainer": None}

    def __repr__(self) -> str:
        """What it is, in one line."""
        return (
            f"Recommender({self.config.estimator.label}, {len(self.left_ids):,} left and "
            f"{len(self.right_ids):,} right items, k = {self._model.embedding_dim})"
        )

    @functools.cached_property
    def left_embeddings(self) -> np.ndarray:
        """u of every left item: float32, shape (left items, k)."""
        return self._embeddings("left")

    @functools.cached_property
    def right_embeddings(self) -> np.ndarray:
        """v of every right item: float32, shape (right items, k)."""
        return self._embeddings("right")

    def _embeddings(self, side: SideName) -> np.ndarray:
        embed = self._model.left_embeddings if side == "left" else self._model.right_embeddings
        items = self._corpus.left.items if side == "left" else self._corpus.right.items
        with torch.no_grad():
            rows = embed_in_chunks(embed, torch.arange(items, device=self._model.device))
        return np.asarray(rows.cpu().float().numpy())

    def recommend(
        self, left_ids: Any, n: int = 10, *, exclude_seen: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """The right items of greatest score ⟨u, v⟩ for left items.

        Args:
            left_ids: identifiers, shape (B,), or one of them; a tuple is one.
            n: how many right items; all, if there are fewer.
            exclude_seen: leave out the right items that a left item has in training. Of several left items,
                one that has fewer than `n` others ends with seen items, with the score -inf.

        Returns:
            Identifiers, shape (B, n), and scores, float32, shape (B, n), the best first; shape (n,) for one
            left item, without seen items. Equal scores come in no particular order.

        Raises:
            ValueError: for an unknown identifier or a bad `n`.

        Example:
            >>> import numpy as np
            >>> model = fit((np.array(["a", "a", "b"]), np.array(["x", "y", "y"])), progress=False)
            >>> model.recommend("b", n=1)[0].tolist()
            ['x']
        """
        with _value_errors():
            items, single = _items(self.left_ids, left_ids, "left_ids")
            n = _count(n, len(self.right_ids))
            train = self._corpus.train
            sets = ItemSets.of_left_items(train.left, train.right, items)
            seen = sets.rows(0, len(items)) if exclude_seen else None
            found, scores = _best(self.left_embeddings[items], self.right_embeddings, n, seen)
        ids = self.right_ids.to_numpy()[found]
        if single:
            return ids[0][scores[0] > -np.inf], scores[0][scores[0] > -np.inf]
        return ids, scores

    def similar_items(self, right_ids: Any, n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The right items of greatest cosine with right items; each is nearest to itself, if it is not 0.

        Args, shapes and errors are those of `recommend`.

        Example:
            >>> import numpy as np
            >>> model = fit((np.array(["a", "a", "b"]), np.array(["x", "y", "y"])), progress=False)
            >>> model.similar_items("x", n=2)[0].tolist()
            ['x', 'y']
        """
        with _value_errors():
            items, single = _items(self.right_ids, right_ids, "right_ids")
            n = _count(n, len(self.right_ids))
            lengths = np.linalg.norm(self.right_embeddings, axis=1, keepdims=True)
            directions = self.right_embeddings / np.where(lengths > 0, lengths, 1)
            found, scores = _best(directions[items], directions, n)
        ids = self.right_ids.to_numpy()[found]
        return (ids[0], scores[0]) if single else (ids, scores)

    def embed_left(self, features: Any) -> np.ndarray:
        """Embed left items that the model has never seen; see `embed_right`."""
        return self._embed("left", features)

    def embed_right(self, features: Any) -> np.ndarray:
        """Embed right items that the model has never seen, by their features.

        An unseen item has no row in the table of identifiers and gets nothing from it; categories that were
        not in training are left out.

        Args:
            features: as in `fit`, with the same columns; a row an item.

        Returns:
            float32, shape (rows, k).

        Raises:
            ValueError: when the model was trained without features, or with others.

        Example:
            >>> import pandas as pd
            >>> genres = pd.DataFrame({"genre": [["war", "love"], ["war"]]}, index=["x", "y"])
            >>> model = fit((["a", "a"], ["x", "y"]), right_features=genres, embedding_dim=8, progress=False)
            >>> model.embed_right(pd.DataFrame({"genre": [["love"]]})).shape
            (1, 8)
        """
        return self._embed("right", features)

    def _embed(self, name: SideName, features: Any) -> np.ndarray:
        side = self._corpus.left if name == "left" else self._corpus.right
        with _value_errors():
            others = [feature for feature in side.features if feature.vocabulary != side.item]
            if not others:
                raise InputError(f"the model has no {name} features; give fit {name}_features")
            if not isinstance(features, pd.DataFrame) and not scipy.sparse.issparse(features):
                kind = type(features).__name__
                raise InputError(f"{name}_features: must be a DataFrame or a sparse matrix, not a {kind}")
            if not features.shape[0]:
                raise InputError(f"{name}_features: holds no item")
            items = features.shape[0]
            tables = {feature.name: feature.vocabulary for feature in others}
            known = {own: pd.Index(self._corpus.vocabularies[table]["key"]) for own, table in tables.items()}
            encoded = [feature for feature, _ in encode(name, features, items, known)]
            new = {feature.name: replace(feature, vocabulary=tables[feature.name]) for feature in encoded}
            rows = embed_new_items(self._model, name, side, new)
        return np.asarray(rows.cpu().float().numpy())

    def evaluate(self, split: str = "validation", *, among: Among = "all") -> dict[str, Any]:
        """Rank as ``gramrun evaluate`` does (`gramrun.evaluation.protocol`): MAP@10 and other metrics.

        Args:
            split: ``validation``, the pairs that `fit` held out, or ``train``.
            among: the right items that are ranked: ``all``, or the ``unseen`` ones that are held out.

        Raises:
            ValueError: when the split has no pairs, or no unseen right item.
        """
        with _value_errors():
            if split not in ("validation", "train"):
                raise InputError(f"split: must be validation or train, not {split!r:.60}")
            if split == "validation" and not len(self._corpus.validation):
                raise InputError("the model has no validation pairs; give fit a validation_fraction")
            if among not in get_args(Among):
                raise InputError(f"among: must be all or unseen, not {among!r:.60}")
            return evaluate_model(self._model, self._corpus, [split], self.config.evaluation, among)[split]

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a run directory with its corpus: ``gramrun evaluate``, ``export`` and ``neighbors`` read it.

        It appears whole or not at all.

        Args:
            path: the directory.
            force: replace a run that is there.

        Raises:
            ValueError: when something is there, identifiers are neither text nor whole numbers, or the model
                was loaded or unpickled.
            RunError: when the disk is full or the folder cannot be written.
        """
        with _value_errors():
            if self._trainer is None:
                raise InputError(
                    "a model that was loaded, copied or unpickled has no training state to save; save the "
                    "one that fit returned, or copy its run directory"
                )
            for name, ids in (("left", self.left_ids), ("right", self.right_ids)):
                if not (pd.api.types.is_integer_dtype(ids.dtype) or all(isinstance(x, str) for x in ids)):
                    raise InputError(
                        f"the {name} identifiers are neither text nor whole numbers; fit with "
                        "astype(str), or use pickle"
                    )
            folder, trainer = Path(path).expanduser(), self._trainer
            if folder.exists() and not force:
                raise InputError(f"{folder}: exists already; choose another path, or replace it: force=True")
            runs.check_free(folder, force=force)
        data = self.config.data.model_copy(update={"path": folder / CORPUS})
        config = self.config.model_copy(update={"data": data})
        with _value_errors(), new_folder(folder) as temporary:
            run = runs.create(temporary, "train", config, self._corpus.content_hash)
            shards.write_split(self._corpus, temporary / CORPUS, origin={})
            run.update_manifest(seconds=trainer.train_seconds)
            with runs.outcome(run, torch.get_num_threads()) as elapsed:
                progress = {"step": trainer.step, "epoch": trainer.epoch, "loss": self._loss}
                seconds = {"seconds": elapsed(), "train_seconds": trainer.train_seconds}
                run.append_metrics(progress | seconds)
                checkpoints.save(run, trainer, losses=[0.0])
        return folder


@contextlib.contextmanager
def _value_errors() -> Iterator[None]:
    """Turn errors of input and settings into `ValueError`s of one line, as Python's libraries raise them."""
    try:
        yield
    except (InputError, ConfigError) as error:
        raise ValueError(one_line(error)) from None


def _asked(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given, by their full keys."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        key = _key(name)
        if key.startswith(UNREAD):
            raise InputError(f"{key}: fit does not read it; it is for `gramrun train`")
        if key in OWN:
            raise InputError(f"{key}: give it as {OWN[key]}")
        if key in found:
            raise InputError(f"{key} is given twice")
        found[key] = _python(value)
    return found


def _python(value: Any) -> Any:
    """A number or list of NumPy as Python's."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _key(name: str) -> str:
    """The full key of a setting."""
    keys = keys_of(RunConfig)
    if any(key.startswith(f"{name}.") for key in keys):
        raise ConfigError(f"{name} is a section; give its keys, as in gravity=10")
    if name in keys or "." in name:
        return name
    found = [key for key in keys if key.rpartition(".")[2] == name]
    if len(found) > 1:
        raise ConfigError(f"{name} is ambiguous: give one of {', '.join(found)} in full")
    return found[0] if found else name


def _configuration(values: dict[str, Any], asked: Collection[str]) -> RunConfig:
    """A configuration of keys and values, with the messages of the command line.

    A message says which of the keys that were `asked` for it is about; the user knows of no others.
    """
    try:
        overrides = [f"{key}={json.dumps(value, default=_plain)}" for key, value in values.items()]
        return load_config(RunConfig, None, overrides)
    except ConfigError as error:
        message = str(error).removeprefix("--set ")
        place, _, rest = message.partition(": ")
        raise ConfigError(message if place.partition("=")[0] in asked or not rest else rest) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if (found := _python(value)) is value:
        raise ConfigError(f"{value!r:.60} is no value of a setting")
    return found


def _items(known: pd.Index, given: Any, what: str) -> tuple[np.ndarray, bool]:
    """The numbers of identifiers, and whether a single one was given."""
    single = not pd.api.types.is_list_like(given) or isinstance(given, tuple | frozenset)
    try:
        labels = pd.Index([given] if single else given, tupleize_cols=False)
        items = known.get_indexer(labels)
    except (TypeError, ValueError):  # unhashable, or of several dimensions
        raise InputError(f"{what}: must be identifiers, or one of them, not {given!r:.60}") from None
    if (unknown := np.flatnonzero(items < 0)).size:
        first = labels[unknown[:1]].tolist()[0]
        hint = f"; its ids are text: {str(first)!r}" if str(first) in known else ""
        raise InputError(f"{what}: {first!r} is not known to the model{hint}")
    return np.asarray(items), single


def _count(n: int, items: int) -> int:
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        raise InputError(f"n: must be a whole number from 1, not {n!r:.60}")
    return min(int(n), items)


def _best(
    queries: np.ndarray, candidates: np.ndarray, n: int, seen: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The candidates of greatest inner product: positions (int64) and scores (float32), both (B, n).

    Args:
        queries: float32, shape (B, k).
        candidates: float32, shape (items, k).
        n: at most the number of items.
        seen: cells, query and candidate, whose score is -inf; queries in ascending order.
    """
    v = torch.from_numpy(candidates)
    at_once = max(1, _SCORES_AT_ONCE // len(candidates))
    found, scores = np.empty((len(queries), n), dtype=np.int64), np.empty((len(queries), n), dtype=np.float32)
    for start in range(0, len(queries), at_once):
        products = torch.from_numpy(queries[start : start + at_once]) @ v.T
        if seen is not None:
            first, last = np.searchsorted(seen[0], [start, start + len(products)])
            products[seen[0][first:last] - start, seen[1][first:last]] = -torch.inf
        best = products.topk(n, dim=1)
        found[start : start + at_once], scores[start : start + at_once] = best.indices, best.values
    return found, scores


def _read_ids(corpus: SplitCorpus, side: Side) -> pd.Index:
    """Identifiers of a corpus on disk: whole numbers where they were, else text."""
    frame = corpus.vocabularies[side.item]
    numbered = ID in frame and pd.api.types.is_integer_dtype(frame[ID])  # else a display column of that name
    ids: pd.Index = pd.Index(frame[ID].to_numpy() if numbered else frame["key"].to_numpy(dtype=object))
    return ids
