"""One baseline: fitted, measured exactly as trained models are, and written as a run directory.

A fit takes seconds or a few minutes, so there is nothing to resume: the directory appears whole at the end,
or not at all. `gramrun.evaluation.baselines` holds the methods; the ranking is
`gramrun.evaluation.protocol`'s.
"""

from __future__ import annotations

import json
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError
from gramrun.base.files import new_folder, write_json, write_text
from gramrun.base.provenance import now
from gramrun.config import BaselineConfig, BaselineSection
from gramrun.config.loading import dump_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.manifest import UNREADABLE
from gramrun.evaluation.baselines import exact_als
from gramrun.evaluation.baselines.implicit_als import check_installed, fit_implicit_als
from gramrun.evaluation.baselines.popularity import popularity_embeddings
from gramrun.evaluation.protocol import evaluate_beside_popularity
from gramrun.runs import check_same_data, directory
from gramrun.runs.directory import BaselineRun, checksums

EMBEDDINGS = "embeddings.npz"


@dataclass(frozen=True)
class Fitted:
    """A fitted baseline.

    Attributes:
        left, right: float32, shapes (left items, k) and (right items, k), ranked by inner product.
        records: the lines of ``metrics.jsonl``: step (sweeps done), seconds and, of exact ALS, the objective.
    """

    left: Tensor
    right: Tensor
    records: list[dict[str, Any]]


def fit_baseline(section: BaselineSection, corpus: SplitCorpus) -> Fitted:
    """Fit the baseline that `section` names to the training pairs.

    Raises:
        InputError: when a package that it needs is not installed.
        ConfigError: when targets are asked for and the corpus has none.
        RunError: when the numbers do not stay finite.
    """
    started = time.perf_counter()
    if section.name == "exact-als":
        return _fit_exact_als(section, corpus, started)
    if section.name == "implicit-als":
        left, right = implicit_als(section, corpus)
        return Fitted(left, right, [{"step": section.sweeps, "seconds": time.perf_counter() - started}])
    left, right = popularity_embeddings(corpus.left.items, corpus.right_frequency)
    return Fitted(left, right, [{"step": 0, "seconds": time.perf_counter() - started}])


def implicit_als(
    section: BaselineSection,
    corpus: SplitCorpus,
    after_sweep: Callable[[Tensor, Tensor], object] | None = None,
) -> tuple[Tensor, Tensor]:
    """Fit implicit ALS as `section` says on the training pairs of `corpus`.

    Args:
        section: its settings.
        corpus: whose training pairs.
        after_sweep: called with the factors after each sweep.

    Returns:
        The left and the right factors, shapes (items, k).

    Raises:
        InputError: when the package is not installed.
    """
    return fit_implicit_als(
        corpus.train.left,
        corpus.train.right,
        corpus.left.items,
        corpus.right.items,
        factors=section.embedding_dim,
        regularization=section.regularization,
        confidence=section.confidence,
        iterations=section.sweeps,
        seed=section.seed,
        after_sweep=after_sweep,
    )


def exact_als_problem(section: BaselineSection, corpus: SplitCorpus) -> exact_als.Problem:
    """The objective of exact ALS on the training pairs of `corpus`.

    Raises:
        ConfigError: when targets are asked for and the corpus has none.
    """
    train = corpus.train
    if section.target == "value" and train.target is None:
        raise ConfigError(
            f"baseline.target is value, but the pairs of {corpus.place} carry no target; "
            "set baseline.target: one"
        )
    values = train.target if section.target == "value" and train.target is not None else np.ones(len(train))
    return exact_als.Problem(
        pair_left=torch.from_numpy(train.left).long(),
        pair_right=torch.from_numpy(train.right).long(),
        target=torch.from_numpy(values).double(),
        left_weights=exact_als.frequency_weights(torch.from_numpy(corpus.left_frequency), section.gamma_left),
        right_weights=exact_als.frequency_weights(
            torch.from_numpy(corpus.right_frequency), section.gamma_right
        ),
        gravity=section.gravity,
    )


def _fit_exact_als(section: BaselineSection, corpus: SplitCorpus, started: float) -> Fitted:
    sweeps = exact_als.fit(
        exact_als_problem(section, corpus),
        embedding_dim=section.embedding_dim,
        sweeps=section.sweeps,
        tolerance=section.tolerance,
        seed=section.seed,
    )
    records = []
    bar = tqdm(total=section.sweeps, desc=section.label, unit="sweep", disable=not sys.stderr.isatty())
    with bar:
        for sweep in sweeps:
            seconds = time.perf_counter() - started
            records.append({"step": sweep.number, "seconds": seconds, "objective": sweep.objective})
            bar.set_postfix({"F": f"{sweep.objective:.6f}"}, refresh=False)
            bar.update()
    return Fitted(sweep.left.float(), sweep.right.float(), records)


def run_baseline(
    path: Path, config: BaselineConfig, corpus: SplitCorpus, *, force: bool = False
) -> list[dict[str, Any]]:
    """Fit, measure on ``evaluation.splits`` and write a run directory.

    Args:
        path: the directory.
        config: its configuration.
        corpus: the prepared corpus that ``config.data.path`` names.
        force: replace a run that is there.

    Returns:
        One evaluation a split, as ``evaluation.json`` has them.

    Raises:
        InputError: when something is there already, or a package is missing.
        ConfigError: when the configuration does not fit the corpus.
        RunError: when the fit breaks down or the directory cannot be written.
    """
    runs.check_free(path, force=force)
    if config.baseline.name == "implicit-als":
        check_installed()
    manifest = runs.new_manifest("baseline", config, config.baseline.seed, corpus.content_hash)
    started = time.perf_counter()
    fitted = fit_baseline(config.baseline, corpus)
    results = [
        {
            **evaluate_beside_popularity(fitted.left, fitted.right, corpus, split, config.evaluation),
            "step": fitted.records[-1]["step"],
            "method": config.baseline.label,
        }
        for split in dict.fromkeys(config.evaluation.splits)
    ]
    manifest |= {"status": "finished", "finished": now(), "threads": torch.get_num_threads()}
    manifest |= {"seconds": time.perf_counter() - started}
    with new_folder(path) as folder:
        write_text(folder / directory.CONFIG, dump_config(config))
        write_text(folder / directory.METRICS, "".join(json.dumps(r) + "\n" for r in fitted.records))
        np.savez(folder / EMBEDDINGS, left=fitted.left.numpy(), right=fitted.right.numpy())
        write_json(folder / directory.EVALUATION, {str(result["split"]): result for result in results})
        write_json(folder / directory.MANIFEST, {**manifest, "files": checksums(folder)})
    return results


def evaluate_baseline(
    run: BaselineRun,
    corpus: SplitCorpus,
    split: str,
    *,
    candidates: int | None = None,
    full: bool = False,
) -> dict[str, Any]:
    """Evaluate a baseline's stored embeddings, as `evaluate_run` does a checkpoint.

    Raises:
        InputError: when the embeddings are damaged or do not fit the corpus.
    """
    left, right = load_embeddings(run, corpus)
    sweeps = sweeps_done(run)
    settings = run.config.evaluation
    if candidates is not None:
        settings = settings.model_copy(update={"candidates": candidates})
    result = evaluate_beside_popularity(left, right, corpus, split, settings, full=full)
    return {**result, "step": sweeps, "method": run.config.baseline.label}


def sweeps_done(run: BaselineRun) -> int:
    """How many sweeps a baseline took; 0 for one that is no iteration.

    Raises:
        InputError: when its metrics are missing or damaged.
    """
    records = run.metrics()
    if not records:
        path = run.path / directory.METRICS
        raise InputError(f"{path}: damaged (no records); fit the baseline anew with --force")
    return int(records[-1]["step"])


def load_embeddings(run: BaselineRun, corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    """The embeddings of a baseline: float32, shapes (left items, k) and (right items, k).

    Raises:
        InputError: when they are missing, damaged or of other items, or the corpus is another.
    """
    check_same_data(run, corpus.content_hash)
    path = run.file(EMBEDDINGS)
    try:
        with zipfile.ZipFile(path) as archive:
            # `numpy.savez` stores: what is packed is another's, and may unpack to any size.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("packed")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            left, right = stored["left"], stored["right"]
    except (*UNREADABLE, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise InputError(f"{path}: missing or damaged; fit the baseline anew with --force") from None
    for values, count in ((left, corpus.left.items), (right, corpus.right.items)):
        if not (isinstance(values, np.ndarray) and values.ndim == 2):
            raise InputError(f"{path}: holds no embeddings; fit the baseline anew with --force")
        if len(values) != count or values.shape[1] != left.shape[1]:
            raise InputError(f"{path}: of other items; fit the baseline anew with --force")
        if values.dtype != np.float32:
            raise InputError(f"{path}: holds {values.dtype}, not float32; fit the baseline anew with --force")
        if not np.isfinite(values).all():
            raise InputError(f"{path}: holds what is no finite number; fit the baseline anew with --force")
    return torch.from_numpy(left), torch.from_numpy(right)
