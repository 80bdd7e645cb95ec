"""How long a run takes on one thread, from committed timings and its shapes; nothing is trained.

    a step       = products / rate + overhead      (times what its estimator takes beside sampling)
    products     the matrix products of its shapes (`experiments.benchmarks.step_time.products`)
    rate         of the bare products in results/reference/bench/step_time.json, one thread
    overhead     what that step takes beside its products (tables, drawing, Python), by the numbers that pass
                 through a step's batches, and by the growth of growth.json with the items
    evaluation   embedding what is ranked, at the same rate, and ranking as in evaluation_speed.json

A forecast within a factor of two or so: the machine of the timings is not the one that will run.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.step_time import products
from gramrun.base.files import read_json
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.corpus import SplitCorpus

BENCH = Path(__file__).parents[2] / "results" / "reference" / "bench"
_BENCH_NUMBERS = {"pages": 3072 * 2 * (3 * 50 + 256 + 64), "linear": 3072 * 4 * 35}
_FR_SCALE = 142_000_000  # links of the largest wiki of prepare_speed.json
_RANKED = (50_000, 64)  # candidates and k of evaluation_speed.json


@dataclass(frozen=True)
class CostModel:
    """What the committed timings say, in seconds on one thread.

    Attributes:
        rate: products' floating-point operations a second.
        overhead: by ``pages`` (hidden towers) and ``linear``: a step's seconds beside its products.
        growth: pages, and a step's time relative to the smallest corpus.
        estimators: by ``pages`` and ``linear``: an estimator's step relative to sampling's, by its name.
        product, ranking: of one left item against `_RANKED`: the product, and the rest.
    """

    rate: float
    overhead: dict[str, float]
    growth: tuple[tuple[float, ...], tuple[float, ...]]
    estimators: dict[str, dict[str, float]]
    product: float
    ranking: float

    def step(self, config: RunConfig, corpus: SplitCorpus) -> float:
        """Seconds of one training step."""
        kind = "pages" if config.model.hidden else "linear"
        numbers = (2 * config.train.batch_size + config.estimator.gramian_batch_size) * _width(config, corpus)
        items = (corpus.left.items + corpus.right.items) / 2
        growth = float(np.interp(np.log(items), np.log(self.growth[0]), self.growth[1]))
        flops = sum(2 * a * b * c for a, b, c in products(config, corpus))
        overhead = self.overhead[kind] * numbers / _BENCH_NUMBERS[kind]
        own = flops / self.rate + growth * overhead
        if config.estimator.name == "exact":
            return own + self.embedding(config, corpus, corpus.left.items, corpus.right.items)
        return own * self._beside_sampling(kind, config.estimator)

    def _beside_sampling(self, kind: str, section: EstimatorSection) -> float:
        """The measured ratio of the most like estimator: the longest name that begins the section's own."""
        known = self.estimators[kind]
        like = [name for name in known if section.family.startswith(name.partition(" (")[0])]
        return known[max(like, key=len)] if like else 1.0

    def embedding(self, config: RunConfig, corpus: SplitCorpus, left: int, right: int) -> float:
        """Seconds to embed so many left and right items."""
        return sum(
            rows * sum(2 * a * b for a, b in itertools.pairwise(widths)) / self.rate
            for rows, widths in zip((left, right), _widths(config, corpus), strict=True)
        )

    def evaluation(self, config: RunConfig, corpus: SplitCorpus) -> float:
        """Seconds of one evaluation of all its splits."""
        settings, k = config.evaluation, config.model.embedding_dim
        ranked = min(corpus.left.items, settings.left_items or corpus.left.items)
        candidates = min(corpus.right.items, settings.candidates)
        each = (self.product * k / _RANKED[1] + self.ranking) * candidates / _RANKED[0]
        once = self.embedding(config, corpus, ranked, min(corpus.right.items, 2 * settings.candidates))
        return len(settings.splits) * (ranked * each + once)

    def train(self, config: RunConfig, corpus: SplitCorpus) -> float:
        """Seconds of ``gramrun train``."""
        steps, every = config.train.total_steps(len(corpus.train)), config.evaluation.every
        training = steps * self.step(config, corpus)
        if every.unit == "minutes":
            count = training / (60 * every.count) if every.count else 0
        else:
            interval = every.steps(len(corpus.train), config.train.batch_size)
            count = steps / interval if interval else 0
        return training + max(1.0, count) * self.evaluation(config, corpus)

    def gram_error(self, config: RunConfig, corpus: SplitCorpus) -> float:
        """Seconds of ``gramrun gram-error``: the trajectory, each watcher's batch, and the true Gramians."""
        section, steps = config.gram_error, config.train.total_steps(len(corpus.train))
        watching = sum(
            self.embedding(config, corpus, e.gramian_batch_size, e.gramian_batch_size)
            for e in section.estimators
        )
        sampled = section.reference_samples if section.reference == "sampled" else None
        members = [sampled or side.items for side in (corpus.left, corpus.right)]
        interval = section.every.steps(len(corpus.train), config.train.batch_size)
        count = (1 + section.drift) * (2 + (steps // interval if interval else 0))
        truth = self.embedding(config, corpus, *members)
        return steps * (self.step(config, corpus) + watching) + count * truth


def preparation(pairs: int, folder: Path = BENCH) -> float:
    """Seconds to prepare so many pairs from files on disk, at the pace of the largest wiki's older tables."""
    timed = read_json(folder / "prepare_speed.json")["rounds"]["fr-scale-2016"]["prepare"]
    return pairs * statistics.median(timed) / _FR_SCALE


def load(folder: Path = BENCH) -> CostModel:
    """The model of the committed timings."""
    steps, costs, growth, ranking = (
        read_json(folder / f"{name}.json")
        for name in ("step_time", "estimator_cost", "growth", "evaluation_speed")
    )
    timed = {kind: steps["workloads"][kind]["by_threads"]["1"] for kind in _BENCH_NUMBERS}
    ms = {
        kind: {name: statistics.median(values) for name, values in found["ms"].items()}
        for kind, found in timed.items()
    }
    sizes = sorted((size["pages"], name) for name, size in growth["sizes"].items())
    medians = [statistics.median(growth["ms"][name]) for _, name in sizes]
    ranked = next(iter(ranking["ms for 1,000 left items"].values()))
    whole, product = (statistics.median(ranked[name]) for name in ("rank_relevant", "part: product"))
    threads = ranking["threads"]  # products share their work: one thread takes so many times as long
    return CostModel(
        rate=timed["pages"]["flops"] / (1e-3 * ms["pages"]["bare products"]),
        overhead={k: 1e-3 * (found["compiled"] - found["bare products"]) for k, found in ms.items()},
        growth=(tuple(pages for pages, _ in sizes), tuple(m / medians[0] for m in medians)),
        estimators={kind: _ratios(costs[kind]["ms"]) for kind in _BENCH_NUMBERS},
        product=1e-6 * threads * product,
        ranking=1e-6 * threads * (whole - product),
    )


def _ratios(ms: dict[str, Any]) -> dict[str, float]:
    """Each estimator's time relative to sampling's, the median of rounds."""
    return {
        name: statistics.median(a / b for a, b in zip(values, ms["sampling"], strict=True))
        for name, values in ms.items()
    }


def _widths(config: RunConfig, corpus: SplitCorpus) -> list[list[int]]:
    """The widths of both towers, from their inputs to the embedding; linear towers have no products."""
    model = config.model
    return [
        [model.input_dim * len(side.features), *model.hidden, model.embedding_dim] if model.hidden else []
        for side in (corpus.left, corpus.right)
    ]


def _width(config: RunConfig, corpus: SplitCorpus) -> int:
    """Numbers that pass through both towers for one pair."""
    if config.model.hidden:
        return sum(map(sum, _widths(config, corpus)))
    return config.model.embedding_dim * sum(len(side.features) for side in (corpus.left, corpus.right))
