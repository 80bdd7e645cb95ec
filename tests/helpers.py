"""What the tests of several folders share: small settings, runs started and continued, results without their times."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from gramrun import runs
from gramrun.config import RunConfig
from gramrun.data.corpus import Corpus, Feature, Side, SplitCorpus, bags, one_hot
from gramrun.gramian.low_rank_prior import LowRankPrior
from gramrun.runs import checkpoints
from gramrun.runs.directory import Run
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer

ROOT = Path(__file__).parents[1]
needs_torchrec = pytest.mark.skipif(
    importlib.util.find_spec("torchrec") is None, reason="TorchRec is not installed (make setup installs it)"
)
CONFIGS = ROOT / "configs"
CONFIG = CONFIGS / "synthetic" / "sogram.yaml"
BASELINE = CONFIGS / "synthetic" / "exact-als.yaml"
SMALL = ("train.steps=40", "train.batch_size=64", "estimator.gramian_batch_size=32")


# Every estimator and objective, by settings.
PAIRS = ("train.gamma_left=1", "train.gamma_right=1")
PREVIOUS = ("estimator.batch=previous", "estimator.gramian_batch_size=64")
SVD = ("train.prior.name=svd", "train.prior.rank=3")
TAYLOR = ("train.objective=taylor-softmax", "train.gamma_left=1", "train.gravity=1")
FOLDER = "{folder}"  # stands for a folder of the test's own

FORMS = {
    "sampling": ("estimator.name=sampling",),
    "sogram": ("estimator.name=sogram",),
    "sogram, free batch": ("estimator.name=sogram", *PREVIOUS),
    "sogram, debiased": ("estimator.name=sogram", "estimator.debias=true"),
    "sogram, table": ("estimator.name=sogram", "estimator.alpha_schedule={1: 1, 5: 0.1}"),
    "sogram, exact start": ("estimator.name=sogram", "estimator.start=exact"),
    "sogram, caches": ("estimator.name=sogram", "estimator.cache=item"),
    "SAG, items, free batch": ("estimator.name=sagram", "estimator.beta=1/n", *PREVIOUS),
    "SAG, pairs": ("estimator.name=sagram", "estimator.beta=1/n", "estimator.cache=pair", *PAIRS),
    "SAGA, items": ("estimator.name=sagram", "estimator.rebuild_every=7"),
    "SAGA, unprojected": ("estimator.name=sagram", "estimator.project=false"),
    "SAGA, pairs": ("estimator.name=sagram", "estimator.cache=pair", *PAIRS),
    "SAGA, on disk": (
        "estimator.name=sagram",
        "estimator.cache_dtype=bfloat16",
        f"estimator.cache_folder={FOLDER}",
        "estimator.rebuild_every=7",
    ),
    "control variate": ("estimator.name=control-variate",),
    "control variate, caches": ("estimator.name=control-variate", "estimator.cache=item"),
    "exact": ("estimator.name=exact",),
    "no gravity": ("estimator.name=none", "train.gravity=0"),
    "batch softmax": ("estimator.name=none", "train.objective=batch-softmax"),
    "Taylor softmax, caches": (*TAYLOR, "estimator.name=sagram"),
    "prior": SVD,
    "between pairs and items": ("train.gamma_left=0.5", "train.gamma_right=0.25"),
}


def made_side(item: str, items: int, *features: Feature) -> Side:
    """Items that have their own ids, and other features."""
    return Side(item, items, (one_hot(item, item, np.arange(items)), *features))


def made_corpus(
    left: Side,
    right: Side,
    pairs: Iterable[np.ndarray],
    vocabularies: Mapping[str, int | pd.DataFrame] | None = None,
    **more: Any,
) -> Corpus:
    """A corpus by hand.

    Args:
        left: one side.
        right: the other, or the same.
        pairs: the left and the right items of the pairs, which are sorted.
        vocabularies: frames, or how many values there are, whose keys are then numbers; by default of items alone.
        more: other fields of `Corpus`.
    """
    counts = {left.item: left.items, right.item: right.items, **(vocabularies or {})}
    frames = {
        name: pd.DataFrame({"key": np.arange(count).astype(str)}) if isinstance(count, int) else count
        for name, count in counts.items()
    }
    return Corpus("made", left, right, frames, *(np.array(items, dtype=np.int32) for items in pairs), **more)


def pages_corpus() -> Corpus:
    """Pages that link to pages: every table shared by both sides, bags empty, long and with repeated rows."""
    random = np.random.default_rng(0)
    count = 90
    words = [random.integers(12, size=random.integers(0, 7)).tolist() for _ in range(count)]
    side = made_side("page", count, bags("words", "word", words))
    pairs = np.unique(random.integers(count, size=1600) * count + random.integers(count, size=1600))
    return made_corpus(side, side, np.divmod(pairs, count), {"word": 12})


def values_of(corpus: Corpus, side: Side, name: str) -> list[list[str]]:
    """The values of a feature, item by item."""
    feature = next(f for f in side.features if f.name == name)
    keys = corpus.vocabularies[feature.vocabulary]["key"].tolist()
    return [[keys[i] for i in bag] for bag in np.split(feature.indices, feature.offsets[1:-1])]


def settings(*overrides: str) -> list[str]:
    """Overrides on the command line."""
    return [part for override in overrides for part in ("--set", override)]


def start(path: Path, config: RunConfig, corpus: SplitCorpus, **options: bool) -> Run:
    """A new run without a step."""
    return runs.create(path, "train", config, corpus.content_hash, **options)


def train(path: Path, config: RunConfig, corpus: SplitCorpus) -> tuple[Run, Trainer]:
    """A run from its start to its end."""
    run, trainer = start(path, config, corpus), Trainer(config, corpus)
    fit(run, trainer, corpus)
    return run, trainer


def restored(path: Path, config: RunConfig, corpus: SplitCorpus) -> tuple[Run, Trainer, dict[str, Any]]:
    """A run reopened, a new trainer at its newest whole checkpoint, and what else the checkpoint holds."""
    run, trainer = runs.resume(path, "train", config, corpus.content_hash), Trainer(config, corpus)
    return run, trainer, checkpoints.restore(run, trainer)


def resume(path: Path, config: RunConfig, corpus: SplitCorpus) -> Run:
    """A run continued to its end from what is on the disk."""
    run, trainer, saved = restored(path, config, corpus)
    fit(run, trainer, corpus, saved.get("losses", ()))
    return run


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    """A record of results without what a clock decided."""
    return {key: value for key, value in record.items() if "second" not in key}


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested state by name, tensors as bytes, without what a clock decided."""
    if isinstance(value, torch.Tensor):
        bits = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield name, (value.dtype, tuple(value.shape), bits)
    elif isinstance(value, dict | list | tuple):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, f"{name}.{key}")
    elif "second" not in name:
        yield name, value


def save_prior(prior: LowRankPrior, path: Path) -> None:
    np.savez(path, left=prior.left.numpy(), right=prior.right.numpy())


def pids_by_rank(process) -> dict[int, int]:
    """The processes that a launcher has started; Linux only."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = {}
    for child in map(int, children):
        names = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks |= {int(name.removeprefix(b"RANK=")): child for name in names if name.startswith(b"RANK=")}
    return ranks
