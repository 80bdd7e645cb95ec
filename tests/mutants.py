"""Mutation testing of the modules whose arithmetic everything else trusts; what came of it is in `mutants.md`.

    make mutants                                           every mutant of every module (three hours)
    python tests/mutants.py gramian/sogram.py --sample 50  some of one

The changes are mutmut's own operators. mutmut itself passes over every decorated function, and so over every
`observe`, which stands under `torch.no_grad`; hence this loop. It imports everything and collects the module's tests
once, and forks a child for each mutant. There the functions of the module get their changed code, and the tests run
until one fails. A mutant that survives this is tried again in a child that imports the changed text in the module's
place, since what ran at import, such as a constant that another module took, cannot be changed afterwards.

Not changed are annotations, decorators, docstrings, `len` and `isinstance` (as in mutmut), and the texts of errors.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import inspect
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a process with one thread may fork

import _pytest.main
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
TESTS = {  # the test files that ought to notice, the likeliest first
    "gramian/__init__.py": [
        *CORE,
        "test_sogram.py",
        "test_control_variate.py",
        "test_caches.py",
        "test_contracts.py",
        "test_outside.py",
    ],
    "gramian/batch.py": [*CORE, "test_surrogate.py", "test_batches.py"],
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
    "metrics.py": ["test_metrics.py"],
    "data/wikipedia/sql_dump.py": ["test_sql_dump.py"],
}
MEMORY = 24 << 30  # address space of a child: a mutant may ask for any amount


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, the module's text with it, and the line before and after."""

    line: int
    source: str
    before: str
    after: str


class Changes(cst.CSTVisitor):
    """Collects every change of a module, in the order of the text."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int]] = []
        self._in_error = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom):
            return False
        if (
            isinstance(node, cst.Call)
            and isinstance(node.func, cst.Name)
            and node.func.value in ("len", "isinstance")
        ):
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
        first = next(
            i for i, (a, b) in enumerate(zip(old.splitlines(), source.splitlines(), strict=False)) if a != b
        )
        before, after = (text.splitlines()[first].strip() for text in (old, source))
        yield Mutant(max(line, first + 1), source, before, after)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module in the text that it is given."""

    def __init__(self, path: Path, source: str) -> None:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        self.name, self._path, self._source = name.removesuffix(".__init__"), path, source

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(
            fullname,
            self._path,
            loader=self,
            submodule_search_locations=[str(self._path.parent)] if self._path.stem == "__init__" else None,
        )

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


def forked(child: Callable[[], int], time_out: float) -> str:
    """What a child process says of a mutant: killed, survived or timed out."""
    process = os.fork()
    if not process:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        try:
            os._exit(child())
        except BaseException:
            os._exit(1)
    ended = time.monotonic() + time_out
    while time.monotonic() < ended:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.01)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return "timed out"


def graft(old: object, new: object, home: str) -> None:
    """Give a live module or class what another one has: functions keep who they are and get new code."""
    for name, value in list(vars(new).items()):
        held = vars(old).get(name)
        if held is value or name in (
            "__builtins__",
            "__dict__",
            "__weakref__",
            "__abstractmethods__",
            "_abc_impl",
        ):
            continue
        if isinstance(value, type) and isinstance(held, type) and value.__module__ == home:
            graft(held, value, home)
            continue
        before, after = _function(held), _function(value)
        if (
            before is None
            or after is None
            or len(before.__code__.co_freevars) != len(after.__code__.co_freevars)
        ):
            setattr(old, name, value)
        else:
            before.__code__, before.__defaults__ = after.__code__, after.__defaults__
            before.__kwdefaults__ = after.__kwdefaults__


def _function(value: object) -> FunctionType | None:
    """The function within a property, a class method or a decorator."""
    value = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))  # type: ignore[arg-type]
    return value if isinstance(value, FunctionType) else None


class Grafted:
    """A pytest plugin that, in place of running the tests once, runs them for each mutant in a child.

    Args:
        path: the module.
        chosen: the mutants.
        report: is told of each what became of it.
    """

    def __init__(self, path: Path, chosen: Sequence[Mutant], report: Callable[[Mutant, str], None]) -> None:
        self.path, self.chosen, self.report = path, chosen, report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        started = time.monotonic()
        unchanged = self.path.read_text(encoding="utf-8")
        if forked(lambda: self._child(session, unchanged), 600) != "survived":
            pytest.exit(f"{self.path}: its tests fail, or take above ten minutes, without any change", 1)
        time_out = 30 + 5 * (time.monotonic() - started)
        for mutant in self.chosen:
            source = mutant.source
            outcome = forked(lambda: self._child(session, source), time_out)  # noqa: B023
            if outcome == "survived":
                outcome = forked(lambda: imported(self.path, source), time_out)  # noqa: B023
            self.report(mutant, outcome)
        return True

    def _child(self, session: pytest.Session, source: str) -> int:
        live = sys.modules[Changed(self.path, source).name]
        fresh = ModuleType(live.__name__)
        exec(compile(source, str(self.path), "exec"), fresh.__dict__)
        graft(live, fresh, live.__name__)
        _pytest.main.pytest_runtestloop(session)
        return int(session.testsfailed > 0)


def imported(path: Path, source: str) -> int:
    """Run the module's tests with everything of this project imported anew, the module in this text."""
    for name, module in list(sys.modules.items()):
        if name != "__main__" and str(getattr(module, "__file__", None) or "").startswith(f"{ROOT}{os.sep}"):
            del sys.modules[name]
    sys.meta_path.insert(0, Changed(path, source))
    return int(pytest.main(arguments(path)))


def arguments(path: Path) -> list[str]:
    """What pytest is told: the module's tests, up to the first that fails."""
    module = path.relative_to(ROOT / "gramrun")
    options = [
        "-x",
        "-qq",
        "-s",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "--hypothesis-profile=mutants",
    ]
    options.append("--noconftest")  # none of these tests takes its fixtures, which load the whole package
    options += [
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]  # hypothesis has been imported before pytest ran
    return [*options, *(str(ROOT / "tests" / module.parent / name) for name in TESTS[str(module)])]


def test(module: str, sample: int | None, seed: int, output: Path | None) -> None:
    """Test a module's mutants, or a sample of them; print those that were not killed, and the counts."""
    started, path, counts = time.monotonic(), ROOT / "gramrun" / module, Counter[str]()
    every = list(mutants(path))
    chosen = every if sample is None else random.Random(seed).sample(every, min(sample, len(every)))

    def report(mutant: Mutant, outcome: str) -> None:
        counts[outcome] += 1
        if outcome != "killed":
            print(
                f"{module}:{mutant.line} {outcome}\n    - {mutant.before}\n    + {mutant.after}", flush=True
            )
        if output is not None:
            record = {"module": module, "line": mutant.line, "outcome": outcome}
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record | {"before": mutant.before, "after": mutant.after}) + "\n")

    pytest.main(arguments(path), plugins=[Grafted(path, chosen, report)])
    if counts.total() < len(chosen):
        sys.exit(1)  # pytest has said why
    counted = ", ".join(f"{counts[kind]} {kind}" for kind in ("killed", "timed out", "survived"))
    minutes = (time.monotonic() - started) / 60
    print(
        f"{module}: {counts.total()} of {len(every)} mutants: {counted} ({minutes:.1f} minutes)", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS), help="as gramian/sogram.py; all without")
    parser.add_argument("--sample", type=int, help="so many mutants of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--output", type=Path, help="a JSON line for each mutant is added here")
    asked = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # The same examples for each mutant, and no time spent on making a failing one smaller.
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "mutants", deadline=None, phases=phases, database=None, derandomize=True
    )
    for module in asked.modules:
        test(module, asked.sample, asked.seed, asked.output)


if __name__ == "__main__":
    main()
