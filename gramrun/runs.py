"""A run directory: resolved config, manifest, metrics, checkpoints. Written whole, never overwritten.

config.yaml             the resolved configuration
manifest.json           command, git commit, versions, data hash, config hash, seed, threads, times
metrics.jsonl           one JSON object a line, in order of steps
checkpoints/step-<9 digits>.pt      one whole state a file; the newest is the last by name
evaluation.json         what `gramrun evaluate` measured
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from gramrun.config import RunConfig
from gramrun.config_loading import config_hash, dump_config, load_config
from gramrun.errors import ConfigError, InputError
from gramrun.files import disk_errors, new_file, new_folder

CONFIG, MANIFEST, METRICS, CHECKPOINTS, EVALUATION = (
    "config.yaml",
    "manifest.json",
    "metrics.jsonl",
    "checkpoints",
    "evaluation.json",
)
CHECKPOINTS_KEPT = 2  # the newest, and one to fall back on where the newest is torn


@dataclass(frozen=True)
class Run:
    """A run directory.

    Attributes:
        path: the directory.
        config: its resolved configuration.
    """

    path: Path
    config: RunConfig

    @property
    def manifest(self) -> dict[str, Any]:
        """The parsed ``manifest.json``."""
        return read_json(self.path / MANIFEST)

    def update_manifest(self, **fields: Any) -> None:
        """Replace fields of the manifest."""
        write_json(self.path / MANIFEST, {**self.manifest, **fields})

    def metrics(self) -> list[dict[str, Any]]:
        """All records of ``metrics.jsonl``; a torn last line, cut off by a crash, is left out."""
        path = self.path / METRICS
        if not path.exists():
            return []
        records = []
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                records.append(json.loads(line))
        return records

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Append one record and hand it to the operating system at once."""
        with disk_errors(self.path), (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def truncate_metrics(self, step: int) -> None:
        """Drop the records after `step`, which a resumed run will write again."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        with new_file(self.path / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")

    def checkpoints(self) -> list[Path]:
        """The checkpoint files, oldest first."""
        return sorted((self.path / CHECKPOINTS).glob("step-*.pt"))

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint of `step` lies."""
        return self.path / CHECKPOINTS / f"step-{step:09d}.pt"

    def drop_old_checkpoints(self) -> None:
        """Keep the newest `CHECKPOINTS_KEPT`."""
        for path in self.checkpoints()[:-CHECKPOINTS_KEPT]:
            path.unlink()


def default_path(config_file: Path, seed: int) -> Path:
    """Where a run goes without ``--output``: runs/<dataset>/<method>-seed<seed>."""
    return Path("runs") / config_file.resolve().parent.name / f"{config_file.stem}-seed{seed}"


def check_free(path: Path, *, force: bool) -> None:
    """Check that a run may be written to `path`.

    Raises:
        InputError: when something is there already (unless `force` and it is a run directory).
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not force:
        raise InputError(f"{path}: exists already; continue it with --resume or replace it with --force")
    if not (path / MANIFEST).is_file() or not (path / CONFIG).is_file():
        raise InputError(f"{path}: is not a run directory, so --force will not replace it")


def create(path: Path, config: RunConfig, data_hash: str, *, force: bool = False) -> Run:
    """Start a run directory.

    Raises:
        InputError: when something is there already (unless `force` and it is a run directory).
        RunError: when it cannot be written.
    """
    check_free(path, force=force)
    manifest = {
        **provenance(),
        "started": now(),
        "status": "running",
        "config_hash": config_hash(config),
        "data_hash": data_hash,
        "seed": config.train.seed,
    }
    with new_folder(path) as temporary:
        (temporary / CHECKPOINTS).mkdir()
        write_text(temporary / CONFIG, dump_config(config))
        write_json(temporary / MANIFEST, manifest)
    return Run(path, config)


def resume(path: Path, config: RunConfig) -> Run:
    """Open a run to go on with it; it may be made longer, and nothing else may change.

    Raises:
        InputError: when `path` is no run directory.
        ConfigError: when `config` differs in more than its length.
    """
    run = open_run(path)
    if _without_length(config) != _without_length(run.config):
        raise ConfigError(
            f"{path}: was started with another configuration; --resume may change only train.epochs or "
            "train.steps (start a new run with another --output)"
        )
    if config != run.config:
        write_text(path / CONFIG, dump_config(config))
    return Run(path, config)


def _without_length(config: RunConfig) -> RunConfig:
    train = config.train.model_copy(update={"epochs": None, "steps": None})
    return config.model_copy(update={"train": train})


def check_same_data(run: Run, data_hash: str) -> None:
    """Check that a run goes on with the corpus it was started on.

    Raises:
        InputError: when the corpus has changed.
    """
    if run.manifest["data_hash"] != data_hash:
        raise InputError(
            f"{run.config.data.path}: holds another corpus than the one {run.path} was started on; "
            "prepare that one again, or start a new run"
        )


def record_evaluation(run: Run, result: Mapping[str, Any]) -> None:
    """Write ``evaluation.json``: the latest result of each split."""
    path = run.path / EVALUATION
    known = read_json(path) if path.exists() else {}
    write_json(path, {**known, str(result["split"]): dict(result)})


def open_run(path: Path) -> Run:
    """Open an existing run directory.

    Raises:
        InputError: when it is none.
        ConfigError: when its config cannot be read by this version.
    """
    if not (path / CONFIG).is_file():
        raise InputError(f"{path}: not a run directory (no {CONFIG}); `gramrun train` makes one")
    return Run(path, load_config(RunConfig, path / CONFIG))


def provenance() -> dict[str, Any]:
    """What every manifest says of how a result came about: command, code, versions, machine."""
    packages = ("gramrun", "torch", "numpy", "pandas", "matplotlib")
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "platform": platform.platform(),
        "processor": _processor(),
        "host_threads": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The checkout's commit, with ``+changes`` where files differ from it; None outside a checkout."""
    here = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty=+changes", "--exclude=*"],
            cwd=here, capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform module knows less, but something
    return platform.processor() or platform.machine()


def now() -> str:
    """The time in UTC, ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: when the file is missing or damaged.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path}: missing") from None
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def labels(configs: Sequence[RunConfig]) -> list[str]:
    """Name each run by its estimator, and by every setting other than the seed that tells them apart.

    Returns:
        One label a run; runs that differ in nothing but their seed share theirs.
    """

    def settings(config: RunConfig) -> dict[str, Any]:
        flat = flatten(config.model_dump(mode="json", exclude={"gram_error", "data"}))
        kept = {key: value for key, value in flat.items() if key not in ("train.seed", "evaluation.seed")}
        return {key: value for key, value in kept.items() if key not in _IN_LABEL}

    all_settings = [settings(config) for config in configs]
    differing = [
        key
        for key in dict.fromkeys(key for settings in all_settings for key in settings)
        if len({json.dumps(settings.get(key)) for settings in all_settings}) > 1
    ]
    return [
        ", ".join(
            [config.estimator.label, *(f"{key.rsplit('.', 1)[-1]} {settings.get(key)}" for key in differing)]
        )
        for config, settings in zip(configs, all_settings, strict=True)
    ]


# The estimator's label says these, or they have no effect under another estimator.
_IN_LABEL = frozenset({"estimator.name", "estimator.alpha", "estimator.beta", "estimator.project"})


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat
