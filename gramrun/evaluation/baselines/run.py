"""Fit a baseline, evaluate it as trained models are evaluated, and write a run directory.

The directory appears complete or not at all. An interrupted exact ALS, which can take hours, goes on when the
same command is given again (`gramrun.evaluation.baselines.unfinished`).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from gramrun import runs
from gramrun.base.capacity import check_capacity
from gramrun.base.errors import ConfigError
from gramrun.base.files import check_replaceable, new_folder, read_json, write_json, write_text
from gramrun.base.provenance import now
from gramrun.config import BaselineConfig, BaselineSection, EvaluationSection
from gramrun.config.loading import dump_config
from gramrun.data.corpus import SplitCorpus
from gramrun.evaluation.baselines import by_features, ease, exact_als, implicit_als, unfinished
from gramrun.evaluation.protocol import (
    evaluate_embeddings,
    popularity_embeddings,
    with_popularity,
)
from gramrun.runs import directory

SAVE_SECONDS = 60.0  # between saved sweeps; on a small corpus writing one takes longer than the sweep


@dataclass(frozen=True)
class Fitted:
    """A fitted baseline.

    Attributes:
        left, right: float32, shapes (left items, k) and (right items, k), ranked by inner product.
        records: the lines of ``metrics.jsonl``: step (sweeps done), seconds and, for exact ALS, the
        objective.
    """

    left: Tensor
    right: Tensor
    records: list[dict[str, Any]]

    def evaluate(self, corpus: SplitCorpus, split: str, settings: EvaluationSection) -> dict[str, Any]:
        """The record of `evaluate_embeddings`."""
        return evaluate_embeddings(self.left, self.right, corpus, split, settings)

    def save(self, folder: Path) -> None:
        """Write ``embeddings.npz``."""
        np.savez(folder / directory.EMBEDDINGS, left=self.left.numpy(), right=self.right.numpy())


@dataclass(frozen=True)
class FittedWeights:
    """Fitted EASE.

    Attributes:
        weights: B, float32, shape (right items, right items).
        records: the line of ``metrics.jsonl``: step (0) and seconds.
    """

    weights: ease.Weights
    records: list[dict[str, Any]]

    def evaluate(self, corpus: SplitCorpus, split: str, settings: EvaluationSection) -> dict[str, Any]:
        """The record of `ease.evaluate`."""
        return ease.evaluate(self.weights, corpus, split, settings)

    def save(self, folder: Path) -> None:
        """Write ``item_weights.npy``."""
        np.save(folder / directory.ITEM_WEIGHTS, self.weights)


def fit_baseline(
    section: BaselineSection, corpus: SplitCorpus, folder: Path | None = None, *, force: bool = False
) -> Fitted:
    """Fit the baseline of `section`, one with embeddings, to the training pairs.

    Args:
        section: its configuration.
        corpus: the corpus.
        folder: where exact ALS keeps its last sweep, and goes on from it; None keeps nothing.
        force: replace what is in `folder` where it is damaged.

    Raises:
        InputError: when a required package is not installed, or `folder` is damaged.
        ConfigError: when ``baseline.target`` is ``value`` and the corpus has no targets, or features are
            missing.
        RunError: when the numbers do not stay finite.
    """
    started = time.perf_counter()
    if section.name == "exact-als":
        return _fit_exact_als(section, corpus, started, folder, force)
    if section.name == "implicit-als":
        left, right = implicit_als.fit(section, corpus)
        step = section.sweeps
    else:
        left, right = _without_sweeps(section, corpus)
        step = 0
    return Fitted(left, right, [{"step": step, "seconds": time.perf_counter() - started}])


def fit_ease(section: BaselineSection, corpus: SplitCorpus, path: Path) -> FittedWeights:
    """Fit EASE, after a check of the disk under `path` for its weights.

    Raises:
        ConfigError: when memory or disk do not suffice.
        RunError: when the fit breaks down.
    """
    started = time.perf_counter()
    items = corpus.right.items
    check_capacity(
        4 * items**2,
        "disk",
        what=f"EASE's weights of {items:,} x {items:,} right items",
        remedy="choose another --output",
        path=path,
    )
    weights = ease.fit(corpus.train, corpus.left.items, items, section.l2)
    return FittedWeights(weights, [{"step": 0, "seconds": time.perf_counter() - started}])


def _without_sweeps(section: BaselineSection, corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    if section.name == "tfidf":
        return by_features.tfidf(corpus)
    if section.name == "feature-popularity":
        return by_features.feature_popularity(corpus)
    return popularity_embeddings(corpus.left.items, corpus.right_frequency)


def exact_als_problem(section: BaselineSection, corpus: SplitCorpus) -> exact_als.Problem:
    """The objective of exact ALS on the training pairs of `corpus`.

    Raises:
        ConfigError: when ``baseline.target`` is ``value`` and the corpus has no targets.
    """
    train = corpus.train
    values = np.ones(len(train))
    if section.target == "value":
        if train.target is None:
            raise ConfigError(
                f"baseline.target is value, but the pairs of {corpus.place} carry no target; "
                "set baseline.target: one"
            )
        values = train.target
    left_frequency, right_frequency = map(torch.from_numpy, (corpus.left_frequency, corpus.right_frequency))
    return exact_als.Problem(
        pair_left=torch.from_numpy(train.left).long(),
        pair_right=torch.from_numpy(train.right).long(),
        target=torch.from_numpy(values).double(),
        left_weights=exact_als.frequency_weights(left_frequency, section.gamma_left),
        right_weights=exact_als.frequency_weights(right_frequency, section.gamma_right),
        gravity=section.gravity,
    )


def _fit_exact_als(
    section: BaselineSection, corpus: SplitCorpus, started: float, folder: Path | None, force: bool
) -> Fitted:
    identity = {"baseline": section.model_dump(mode="json"), "data_hash": corpus.content_hash}
    last, records = unfinished.restore(folder, identity, force=force) if folder else (None, [])
    if records:
        started -= records[-1]["seconds"]
    sweeps = exact_als.fit(
        exact_als_problem(section, corpus),
        embedding_dim=section.embedding_dim,
        sweeps=section.sweeps,
        tolerance=section.tolerance,
        seed=section.seed,
        steps=section.conjugate_gradient_steps,
        after=last,
    )
    hidden = not sys.stderr.isatty()
    saved = time.perf_counter()
    with tqdm(
        total=section.sweeps, initial=len(records), desc=section.label, unit="sweep", disable=hidden
    ) as bar:
        for last in sweeps:
            seconds = time.perf_counter() - started
            records.append({"step": last.number, "seconds": seconds, "objective": last.objective})
            bar.set_postfix({"F": f"{last.objective:.6f}"}, refresh=False)
            bar.update()
            if folder and time.perf_counter() - saved >= SAVE_SECONDS:
                unfinished.save(folder, identity, last, records)
                saved = time.perf_counter()
    assert last is not None  # baseline.sweeps is 1 or more
    return Fitted(last.left.float(), last.right.float(), records)


def run_baseline(
    path: Path, config: BaselineConfig, corpus: SplitCorpus, *, force: bool = False
) -> list[dict[str, Any]]:
    """Fit a baseline, evaluate it on ``evaluation.splits`` and write a run directory.

    Args:
        path: the directory.
        config: its configuration.
        corpus: the corpus of ``config.data.path``.
        force: replace a run that is there, and a sweep of an interrupted one that cannot be used.

    Returns:
        One evaluation for each split, as in ``evaluation.json``.

    Raises:
        InputError: when something is there already, a package is missing, or `RUN.unfinished` is damaged.
        ConfigError: when the configuration does not fit the corpus, or memory or disk do not suffice.
        RunError: when the fit breaks down or the directory cannot be written.
    """
    section, settings = config.baseline, config.evaluation
    manifest = runs.new_manifest("baseline", config, section.seed, corpus.content_hash)
    check_replaceable(path)
    interrupted = unfinished.folder_of(path)
    if (
        section.name == "exact-als" and not force and _holds(path, manifest)
    ):  # killed after the directory was written
        unfinished.remove(interrupted)
    runs.check_free(path, force=force, corpus=config.data.path)
    fitted: Fitted | FittedWeights
    if section.name == "ease":
        fitted = fit_ease(section, corpus, path)
    else:
        fitted = fit_baseline(section, corpus, interrupted, force=force)
    evaluating = time.perf_counter()
    last = {"step": fitted.records[-1]["step"], "method": section.label}
    results = []
    for split in dict.fromkeys(settings.splits):
        result = fitted.evaluate(corpus, split, settings)
        results.append({**with_popularity(result, corpus, settings), **last})
    manifest |= {"status": "finished", "finished": now(), "threads": torch.get_num_threads()}
    manifest |= {"seconds": fitted.records[-1]["seconds"] + time.perf_counter() - evaluating}
    with new_folder(path) as folder:
        write_text(folder / directory.CONFIG, dump_config(config))
        write_text(folder / directory.METRICS, "".join(json.dumps(r) + "\n" for r in fitted.records))
        fitted.save(folder)
        results = [runs.write_per_item(folder, result) for result in results]
        write_json(folder / directory.EVALUATION, {str(result["split"]): result for result in results})
        manifest["files"] = directory.checksums(folder)
        write_json(folder / directory.MANIFEST, manifest)
    if section.name == "exact-als":
        unfinished.remove(interrupted)
    return results


def _holds(path: Path, manifest: dict[str, Any]) -> bool:
    """Whether a directory has a run of the configuration and corpus of a manifest."""
    if not (path / directory.MANIFEST).exists():
        return False
    known = read_json(path / directory.MANIFEST)
    return all(known.get(key) == manifest[key] for key in ("config_hash", "data_hash"))
