"""What a machine with one GPU shows in ten minutes (``make gpu``).

    python -m experiments.benchmarks.gpu [--minutes 10] [--data data] [--device cpu --toy]

The parts run in this order until the time is over; one that fails, or that the time does not allow, says so:

    tests       those that need a GPU
    exchanges   the collectives of several processes, by nccl in one process
    learners    the GPU's plain and static engines on 100 batches, against the CPU's compiled one
    steps       ms a step against the bare products (`experiments.benchmarks.step_time`), and device memory
                against the prediction, with the models and tables of Simple, French and English Wikipedia
    corpora     simple-scale (an epoch), fr-scale and en-scale (as many steps as fit), where `data` has them

Goals: the static engine takes at most .3 ms a step for Simple and .6 ms for English. ``--device cpu --toy``
rehearses all parts on small corpora.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from experiments.benchmarks import growth
from experiments.benchmarks.random_pages import pages_corpus
from experiments.benchmarks.step_time import ADAGRAD, BARE, bare_steps, products
from experiments.reproduce.timing import measure, write
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.evaluation.protocol import evaluate_model
from gramrun.training.memory import device_memory
from gramrun.training.trainer import Trainer

OUTPUT = Path("results/reference/gpu")
ENGINES = ("plain", "static")
WIKIS = {"85K": "wikipedia-simple", "1.8M": "wikipedia-fr", "5.3M": "wikipedia-en"}
TOY = {"85K": {"pages": 60, "links": 4000, "ngrams": 30, "categories": 20}}
CORPORA = {"simple-scale": "wikipedia-simple", "fr-scale": "wikipedia-fr", "en-scale": "wikipedia-en"}
# What all engines have.
SETTINGS = (*ADAGRAD, "train.learning_rate=0.01", "train.dense_learning_rate=0.0001")
SMALL = (
    "train.batch_size=64",
    "estimator.gramian_batch_size=64",
    "model.hidden=[8, 4]",
    "model.embedding_dim=4",
)
COMPARED = 100  # steps
FARTHEST = 1e-2  # relative distance of two learners' losses within so many steps
GOALS = {"wikipedia-simple": 0.3, "wikipedia-en": 0.6}  # ms a step of the static engine
GPU_TESTS = (
    "tests/training/test_cuda.py",
    "tests/evaluation/test_ranking.py::test_a_gpu_ranks_as_the_processor_does",
    "tests/gramian/test_contracts.py::test_cuda_agrees_with_cpu",
)


def trainer(wiki: str, corpus: SplitCorpus, *settings: str) -> Trainer:
    """A trainer with a wiki's model on a corpus."""
    endless = (f"data.path={corpus.path}", "train.epochs=null", "train.steps=1000000000")
    return Trainer(load_config(RunConfig, _config(wiki), [*endless, *SETTINGS, *settings]), corpus)


def _config(wiki: str) -> Path:
    return Path("configs") / wiki / "paper-sogram.yaml"


def run_tests() -> dict[str, Any]:
    """Run the tests that need a GPU."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *GPU_TESTS],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    summary = done.stdout.strip().splitlines()[-1]
    return {"summary": summary} if done.returncode == 0 else {"failed": summary}


def exchange(device: str) -> dict[str, Any]:
    """Sum, gather and broadcast in a group of one process."""
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    try:
        rows = torch.arange(6.0, device=device).reshape(3, 2)
        total, whole, sent = rows.clone(), torch.empty_like(rows), [7]
        dist.all_reduce(total)
        dist.all_gather([whole], rows)
        dist.broadcast_object_list(sent, device=torch.device("cpu"))
    finally:
        dist.destroy_process_group()
    if not (torch.equal(total, rows) and torch.equal(whole, rows) and sent == [7]):
        raise ValueError(f"{backend} changes what it exchanges")
    return {"backend": backend}


def compare_learners(corpus: SplitCorpus, device: str, *settings: str) -> dict[str, Any]:
    """The losses of each engine under one seed, and their largest relative distance from the CPU's."""
    forms = {"cpu": ("device=cpu",)}
    forms |= {engine: (f"device={device}", f"train.engine={engine}") for engine in ENGINES}
    losses = {}
    for name, form in forms.items():
        records = trainer(WIKIS["85K"], corpus, *form, *settings).steps()
        losses[name] = [next(records).loss for _ in range(COMPARED)]
    reference = torch.tensor(losses["cpu"])
    distance = {e: float(((torch.tensor(losses[e]) - reference) / reference).abs().max()) for e in ENGINES}
    if not max(distance.values()) < FARTHEST:
        raise ValueError(f"the learners' losses are apart: {distance}")
    return {"largest relative distance": distance, "losses": losses}


def time_steps(wiki: str, corpus: SplitCorpus, device: str, rounds: int, *settings: str) -> dict[str, Any]:
    """Milliseconds a step of the engines and of the bare products, interleaved, and the device memory."""
    timed: dict[str, Any] = {"memory": {}}
    steppers: dict[str, Callable[[], object]] = {}
    for engine in ENGINES:
        before = _allocated(device)
        made = trainer(wiki, corpus, f"device={device}", f"train.engine={engine}", *settings)
        steppers[engine] = made.steps().__next__
        for _ in range(5):  # a static step is captured after a few
            steppers[engine]()
        evaluate_model(made.model, corpus, ["validation"], made.config.evaluation)
        predicted = sum(device_memory(made.config, corpus).values())
        timed["memory"][engine] = {"predicted": predicted, "measured": _peak(device) - before}
    bare = bare_steps(products(made.config, corpus), device)
    steppers[BARE] = lambda: (next(bare), _wait(device))
    goal = {"goal": GOALS[wiki]} if wiki in GOALS else {}
    return {**timed, **goal, "ms": measure(steppers, rounds).to_dict(orient="list")}


def _allocated(device: str) -> int:
    """The device memory that tensors take now, from which on `_peak` counts; 0 without a GPU."""
    if device != "cuda":
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _peak(device: str) -> int:
    """The most device memory that torch has reserved since; 0 without a GPU."""
    return torch.cuda.max_memory_reserved() if device == "cuda" else 0


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def train_for(wiki: str, folder: Path, device: str, seconds: float, *settings: str) -> dict[str, Any]:
    """Train a wiki's model on a prepared corpus for an epoch or so many seconds; then rank."""
    if not folder.exists():
        return {"absent": f"gramrun prepare {folder.name} --output {folder}"}
    corpus = open_corpus(folder)
    made = trainer(wiki, corpus, f"device={device}", "train.engine=static", *settings)
    until = time.monotonic() + seconds
    for record in made.steps():
        if record.epoch >= 1 or time.monotonic() > until:
            break
    ranked = evaluate_model(made.model, corpus, ["validation"], made.config.evaluation)["validation"]
    return {
        "steps": record.step,
        "epoch": record.epoch,
        "ms": 1e3 * record.train_seconds / record.step,
        "map@10": ranked["map@10"],
    }


def parts(
    arguments: argparse.Namespace, folder: Path, left: Callable[[], float]
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The parts by name, in their order. `left` gives the seconds until the time is over."""
    device, toy = arguments.device, arguments.toy
    settings = SMALL if toy else ("evaluation.left_items=20000",)
    sizes = TOY if toy else growth.SIZES
    if device == "cuda":
        yield "tests", run_tests
    yield "exchanges", lambda: exchange(device)

    def corpus(size: str) -> SplitCorpus:
        path = folder / size
        return open_corpus(path) if path.exists() else pages_corpus(path, **sizes[size])

    yield "learners", lambda: compare_learners(corpus("85K"), device, *settings)
    rounds = 1 if toy else 5
    for size in sizes:
        yield (
            f"steps, {WIKIS[size]}",
            lambda size=size: time_steps(WIKIS[size], corpus(size), device, rounds, *settings),
        )
    for name, wiki in ({"85K": WIKIS["85K"]} if toy else CORPORA).items():
        path = (folder if toy else arguments.data) / name
        yield (
            f"corpora, {name}",
            lambda wiki=wiki, path=path: train_for(wiki, path, device, max(0.0, left() - 20), *settings),
        )


def report(found: Mapping[str, Any]) -> str:
    """The Markdown tables."""
    lines = [f"{found['device']}.", ""]
    lines += ["| part | seconds | result |", "|---|---|---|"]
    for name, part in found["parts"].items():
        lines.append(f"| {name} | {part['seconds']:.0f} | {describe(part)} |")
    return "\n".join(lines) + "\n"


def describe(part: Mapping[str, Any]) -> str:
    """The result of a part in one line."""
    for missing in ("failed", "absent"):
        if missing in part:
            return f"{missing}: {part[missing]}"
    if "ms" in part and "memory" in part:
        ms = {name: sorted(times)[len(times) // 2] for name, times in part["ms"].items()}
        memory = {
            engine: f"{m['predicted'] / 1e9:.2f} GB predicted, {m['measured'] / 1e9:.2f} measured"
            for engine, m in part["memory"].items()
        }
        shown = "; ".join(
            f"{name} {value:.2f} ms" + (f" ({memory[name]})" if name in memory else "")
            for name, value in ms.items()
        )
        return f"{shown}; the goal of static is {part['goal']} ms" if "goal" in part else shown
    return ", ".join(f"{name} {value}" for name, value in part.items() if name not in ("seconds", "losses"))


def main(argv: list[str] | None = None) -> int:
    """Run all parts; write gpu.{json,md}. Returns 1 where one failed."""
    parser = argparse.ArgumentParser(description="What a GPU shows in ten minutes.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--data", type=Path, default=Path("data"), help="with the prepared corpora")
    parser.add_argument("--toy", action="store_true", help="small corpora, for a rehearsal")
    parser.add_argument("--output", type=Path, help=f"{OUTPUT}, or results/gpu of a rehearsal")
    arguments = parser.parse_args(argv)
    output = arguments.output or (OUTPUT if arguments.device == "cuda" else Path("results/gpu"))
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no GPU (see `gramrun doctor`); rehearse with --device cpu --toy", file=sys.stderr)
        return 2
    ends = time.monotonic() + 60 * arguments.minutes
    done: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, part in parts(arguments, Path(folder), lambda: ends - time.monotonic()):
            started = time.monotonic()
            try:
                done[name] = part() if started < ends else {"absent": "the time was over"}
            except Exception as error:  # the other parts are still worth their time
                done[name] = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
            done[name]["seconds"] = time.monotonic() - started
            print(f"{name}: {describe(done[name])}", flush=True)
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else "a rehearsal on the CPU"
    found = {"device": device, "parts": done}
    write("gpu", report(found), found, output)
    return int(any("failed" in part for part in done.values()))


if __name__ == "__main__":
    sys.exit(main())
