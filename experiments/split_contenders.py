"""The contenders of `experiments.split_tables`, and the processes that hold them and take turns with them."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from experiments.many_items import Workload
from experiments.split_step import Bags, CountedProcesses, Sides, SplitStep, TableShare
from gramrun.base.files import write_json
from gramrun.gramian.surrogate import GravitySide, gravity_surrogate
from gramrun.model.compiled_learner import CompiledLearner
from gramrun.model.learners import BatchItems
from gramrun.model.losses import squared_error
from gramrun.model.towers import FeatureColumn, Tower, TowerShape, TwoTower

STEPS = 10  # of one contender in one round
HIDDEN, DIM = (256,), 64
RATES = {"table_learning_rate": 0.1, "dense_learning_rate": 0.01}
GRAVITY = 0.1
BLOCK = 1 << 16  # rows drawn once and repeated to fill a table
PARTS = ("merge", "bags", "dense", "update", "ids", "rows", "sums", "gradients")
EXCHANGES = (8, 1 << 20, 1 << 24)  # bytes that gloo's own speed is measured with


@dataclass(frozen=True)
class Case:
    """One contender.

    Attributes:
        kind: ``split`` or ``replicas``.
        rows: V.
        batch: B' and B.
        width: w.
        features: of both sides together.
        values: of an item, in all its features.
        spread: ``uniform`` or ``zipf``.
    """

    kind: str
    rows: int
    batch: int = 8192
    width: int = 64
    features: int = 2
    values: int = 1
    spread: str = "uniform"

    @property
    def name(self) -> str:
        """How tables and files call it."""
        size = f"{self.rows / 1e6:g}M × {self.width}"
        return f"{self.kind}, {size}" + (f", {self.values} values" if self.values > 1 else "") + (
            ", zipf" if self.spread == "zipf" else "")  # fmt: skip

    @property
    def work(self) -> Workload:
        """As the formulas take it."""
        sizes = (self.batch, self.batch)
        return Workload(self.rows, self.width, self.features, self.values, HIDDEN, DIM, *sizes)

    def memory(self, processes: int) -> int:
        """Bytes that a process's rows take."""
        if self.kind == "split":
            return (8 * self.width + 4) * -(-self.rows // processes)
        return (8 * self.width + 4 + 12) * self.rows


@dataclass(frozen=True)
class Group:
    """Contenders that are timed in turns; the first is the reference."""

    title: str
    processes: int
    cases: tuple[Case, ...]


def draw(case: Case, random: np.random.Generator, size: int) -> np.ndarray:
    """Row numbers, int64."""
    if case.spread == "uniform":
        return random.integers(case.rows, size=size)
    ranks = np.power(float(case.rows), random.random(size)).astype(np.int64)  # P(rank) ~ 1/rank
    return ranks * 2_654_435_761 % case.rows  # frequent rows lie anywhere


def draw_sides(case: Case, random: np.random.Generator, items: int) -> Sides:
    """One part of a batch."""
    features, values = case.features // 2, 2 * case.values // case.features
    ends = np.arange(1, items + 1) * values
    left, right = (
        [Bags(draw(case, random, items * values), ends, f * case.width) for f in range(features)]
        for _ in range(2)
    )
    return left, right


def split_stepper(case: Case, processes: CountedProcesses) -> tuple[Any, SplitStep]:
    """What draws batches and what takes a step on one."""
    torch.manual_seed(0)
    random = np.random.default_rng(processes.rank)
    own = len(range(processes.rank, case.rows, processes.count))
    weight = np.empty((own, case.width), dtype=np.float32)
    block = 0.1 * random.standard_normal((BLOCK, case.width), dtype=np.float32)
    for start in range(0, own, BLOCK):
        weight[start : start + BLOCK] = block[: own - start]
    column = FeatureColumn("rows", torch.tensor([0, 1]), torch.tensor([0]))  # the towers only count them
    shape = TowerShape(DIM, case.width, HIDDEN)
    towers = tuple(Tower([column] * (case.features // 2), shape) for _ in range(2))
    step = SplitStep(
        (towers[0], towers[1]), TableShare.of(weight), case.rows, processes, gravity=GRAVITY, **RATES
    )
    part = case.batch // processes.count
    return (lambda: (draw_sides(case, random, part), draw_sides(case, random, part))), step


def replica_stepper(case: Case, processes: CountedProcesses) -> tuple[Any, Callable[..., object]]:
    """The step of `gramrun train`'s replicas: every process draws the whole batch, as it does there."""
    features = (torch.arange(case.rows + 1), torch.arange(case.rows, dtype=torch.int32))
    columns = [[FeatureColumn("rows", *features)] for _ in range(2)]
    model = TwoTower(*columns, {"rows": case.rows}, TowerShape(DIM, case.width, HIDDEN), seed=0)
    learner = CompiledLearner(model, "adagrad", *RATES.values(), mean=False, threads=1, processes=processes)
    for sums in learner.state_dict()["accumulated"].values():
        sums.fill_(0)  # written, hence resident
    random = np.random.default_rng(0)

    def batch() -> list[torch.Tensor]:
        return [torch.from_numpy(draw(case, random, case.batch)) for _ in range(4)]

    def step(*items: torch.Tensor) -> None:
        rows = [
            learner.embed(s, processes.share(i)) for s, i in zip(("left", "right"), items[2:], strict=True)
        ]
        gramians = processes.mean(torch.stack([e.T @ e / len(e) for e in rows]))

        def terms(_: BatchItems, u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            pull = gravity_surrogate(GravitySide(u), GravitySide(v), gramians[0], gramians[1])
            return squared_error(u, v, 1.0), GRAVITY * pull

        learner.take("left", items[0])
        learner.take("right", items[1])
        learner.descend(BatchItems(torch.arange(case.batch), items[0], items[1]), terms)

    return batch, step


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def loopback() -> int:
    """Bytes that have come over the loopback, of everyone."""
    lines = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))


def run_group(rank: int, group: Group, rounds: int, folder: Path) -> None:
    """One of the processes: hold all contenders, time them in turns, write what was found."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=group.processes
    )
    contenders = {}
    for case in group.cases:
        processes = CountedProcesses(rank, group.processes)
        make = split_stepper if case.kind == "split" else replica_stepper
        contenders[case.name] = (processes, *make(case, processes))
    order = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for number in range(rounds + 1):
        for name in order.permutation(list(contenders)):
            processes, batch, step = contenders[name]
            batches = [batch() for _ in range(STEPS)]
            before = Counter(processes.received)
            take = step.step if isinstance(step, SplitStep) else step
            parts = dict.fromkeys(PARTS, 0.0)
            if isinstance(step, SplitStep):
                step.seconds.clear()
            processes.wait()
            wire, begin = loopback(), time.perf_counter()
            for given in batches:
                take(*given)
            seconds = time.perf_counter() - begin
            processes.wait()
            wire = loopback() - wire
            if isinstance(step, SplitStep):
                parts = {part: 1e3 * step.seconds[part] / STEPS for part in PARTS}
            received = {kind: n / STEPS for kind, n in (processes.received - before).items()}
            rows.append({"round": number, "contender": str(name), "ms": 1e3 * seconds / STEPS, "parts": parts,
                         "received": received, "loopback": wire / STEPS / group.processes})  # fmt: skip
    speed = measure_gloo(group.processes) if rounds > 1 else {}
    found = {"rows": rows[len(contenders) :], "gloo": speed, "peak": peak()}  # round 0 warms up
    write_json(folder / f"{rank}.json", found)
    dist.destroy_process_group()
    os._exit(0)  # as `gramrun.__main__` leaves, and why


def measure_gloo(processes: int) -> dict[str, float]:
    """Median milliseconds of an all-to-all in which each process receives so many bytes from each other."""
    found = {}
    for size in EXCHANGES:
        sent = torch.zeros(processes, size // 8, dtype=torch.float64)
        came, times = torch.empty_like(sent), []
        for _ in range(20):
            dist.barrier()
            begin = time.perf_counter()
            dist.all_to_all_single(came, sent)
            times.append(1e3 * (time.perf_counter() - begin))
        found[str(size)] = statistics.median(times)
    return found
