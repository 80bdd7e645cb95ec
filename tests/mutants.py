"""Mutation testing of the modules whose arithmetic everything else relies on; results are in `mutants.md`.

    make mutants                                           every mutant of every module (hours)
    python tests/mutants.py gramian/sogram.py --sample 50  some of one module

The changes are mutmut's operators. mutmut itself skips decorated functions, and so every `observe`, which is under
`torch.no_grad`. This loop imports torch once and forks a child for each mutant; the child imports the changed module
and runs the module's tests until one fails. Annotations, decorators, docstrings, `len`, `isinstance` and the texts of
errors are not changed.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a process with one thread may fork

# Imported before the first fork, because they are slow to import.
import hypothesis.extra.numpy
import ir_measures  # noqa: F401
import libcst as cst
import numba  # noqa: F401
import pandas as pd  # noqa: F401
import pydantic  # noqa: F401
import pytest
import scipy.sparse.linalg  # noqa: F401
import torch  # noqa: F401
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).parents[1]
CORE = ["test_exact.py", "test_unbiasedness.py"]
# The test files that should notice, the likeliest first.
TESTS = {
    "gramian/batch.py": [*CORE, "test_surrogate.py"],
    "gramian/cache.py": ["test_caches.py"],
    "gramian/control_variate.py": ["test_control_variate.py", "test_contracts.py"],
    "gramian/estimator.py": [*CORE, "test_sogram.py", "test_control_variate.py", "test_contracts.py"],
    "gramian/exact.py": ["test_exact.py", "test_contracts.py"],
    "gramian/low_rank_prior.py": ["test_low_rank_prior.py"],
    "gramian/population.py": ["test_population.py"],
    "gramian/sagram.py": ["test_sagram.py", "test_caches.py", *CORE, "test_contracts.py"],
    "gramian/sampling.py": CORE,
    "gramian/schedule.py": ["test_sogram.py"],
    "gramian/sogram.py": ["test_sogram.py", "test_contracts.py"],
    "gramian/surrogate.py": ["test_surrogate.py"],
    "gramian/taylor_softmax.py": ["test_taylor_softmax.py"],
    "evaluation/metrics.py": ["test_metrics.py"],
    "data/wikipedia/sql_dump.py": ["test_sql_dump.py"],
}
MEMORY = 24 << 30  # address space of a child: a mutant may ask for any amount


@dataclass(frozen=True)
class Mutant:
    """One change: its line, the changed text of the module, and the line before and after."""

    line: int
    source: str
    before: str
    after: str


class Changes(cst.CSTVisitor):
    """Collects (node, replacement, line) for every change of a module, in the order of the text."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int]] = []
        self._in_error = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom):
            return False
        is_name = isinstance(node, cst.Call) and isinstance(node.func, cst.Name)
        if is_name and node.func.value in ("len", "isinstance"):
            return False
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.BaseString):
            return False  # a docstring
        self._in_error += isinstance(node, cst.Raise)
        if self._in_error and isinstance(node, cst.BaseString):
            return False
        line = self.get_metadata(PositionProvider, node).start.line
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                self.found += [(node, changed, line) for changed in operator(node)]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._in_error -= isinstance(original_node, cst.Raise)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file; no two have the same text."""
    wrapper = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")))
    changes = Changes()
    wrapper.visit(changes)
    old = wrapper.module.code
    seen = {old}
    for node, changed, line in changes.found:
        source = wrapper.module.deep_replace(node, changed).code
        if source in seen:
            continue
        seen.add(source)
        pairs = zip(old.splitlines(), source.splitlines(), strict=False)
        first, (before, after) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
        yield Mutant(max(line, first), source, before.strip(), after.strip())


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed text."""

    def __init__(self, path: Path, source: str) -> None:
        self.name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self._path, self._source = path, source

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


def in_child(function: Callable[[], int], time_out: float) -> str:
    """The outcome of a mutant's tests in a forked child: killed, survived or timed out."""
    process = os.fork()
    if not process:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        try:
            os._exit(function())
        except BaseException:
            os._exit(1)
    end = time.monotonic() + time_out
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.01)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return "timed out"


def run_tests(path: Path, source: str) -> int:
    """Run the module's tests, with `source` in place of the module, up to the first that fails."""
    sys.meta_path.insert(0, Changed(path, source))
    options = ["-x", "-qq", "-s", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    options += [
        "--hypothesis-profile=mutants",
        "--noconftest",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    module = path.relative_to(ROOT / "gramrun")
    tests = [ROOT / "tests" / module.parent / name for name in TESTS[str(module)]]
    return int(pytest.main([*options, *map(str, tests)]))


def try_module(module: str, sample: int | None, seed: int, output: Path | None) -> None:
    """Try a module's mutants, or a sample; print those that were not killed, and the counts."""
    started, path, counts = time.monotonic(), ROOT / "gramrun" / module, Counter[str]()
    unchanged = path.read_text(encoding="utf-8")
    if in_child(lambda: run_tests(path, unchanged), 600) != "survived":
        sys.exit(f"{module}: its tests fail, or take above ten minutes, without any change")
    time_out = 30 + 5 * (time.monotonic() - started)
    every = list(mutants(path))
    chosen = every if sample is None else random.Random(seed).sample(every, min(sample, len(every)))
    for mutant in chosen:
        source = mutant.source
        outcome = in_child(lambda: run_tests(path, source), time_out)  # noqa: B023
        counts[outcome] += 1
        if outcome != "killed":
            print(
                f"{module}:{mutant.line} {outcome}\n    - {mutant.before}\n    + {mutant.after}", flush=True
            )
        if output is not None:
            record = {"module": module, "line": mutant.line, "outcome": outcome}
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record | {"before": mutant.before, "after": mutant.after}) + "\n")
    counted = ", ".join(f"{counts[kind]} {kind}" for kind in ("killed", "timed out", "survived"))
    minutes = (time.monotonic() - started) / 60
    print(f"{module}: {len(chosen)} of {len(every)} mutants: {counted} ({minutes:.1f} minutes)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS), help="as gramian/sogram.py; default: all")
    parser.add_argument("--sample", type=int, help="number of mutants of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--output", type=Path, help="append a JSON line for each mutant")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # The same examples for each mutant, and no time spent on shrinking a failing one.
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "mutants", deadline=None, phases=phases, database=None, derandomize=True
    )
    for module in arguments.modules:
        try_module(module, arguments.sample, arguments.seed, arguments.output)


if __name__ == "__main__":
    main()
