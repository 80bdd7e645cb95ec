"""Available memory and disk: the tightest limit of machine and control groups counts."""

import types
from collections import namedtuple
from pathlib import Path

import pytest

from gramrun.base import capacity
from gramrun.base.errors import ConfigError

GB = 10**9


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 100 GB available, and control groups as files say: write(path, **files)."""
    monkeypatch.setattr(capacity, "_ROOT", tmp_path)
    memory = types.SimpleNamespace(available=100 * GB)
    monkeypatch.setattr(capacity.psutil, "virtual_memory", lambda: memory)

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    return write


def group_v2(write, group, limit, used, inactive=0):
    folder = f"sys/fs/cgroup/{group}"
    write(f"{folder}/memory.max", limit)
    write(f"{folder}/memory.current", used)
    write(f"{folder}/memory.stat", f"anon 5\nfile {inactive + 7}\ninactive_file {inactive}\nactive_file 7")


def group_v1(write, group, limit, used, inactive=0):
    folder = f"sys/fs/cgroup/memory/{group}"
    write(f"{folder}/memory.limit_in_bytes", limit)
    write(f"{folder}/memory.usage_in_bytes", used)
    write(f"{folder}/memory.stat", f"inactive_file 3\ntotal_inactive_file {inactive}")


def test_without_control_groups_it_is_the_machine(machine):
    assert capacity.available_memory() == 100 * GB


def test_a_limit_below_the_machine_counts_without_its_inactive_cache(machine):
    machine("proc/self/cgroup", "0::/job")
    group_v2(machine, "job", 16 * GB, 10 * GB, inactive=4 * GB)
    assert capacity.available_memory() == 10 * GB


@pytest.mark.parametrize(
    ("inner", "outer", "expected"), [(8, 20, 7), (20, 8, 6), ("max", 8, 6), ("max", "max", 100)]
)
def test_the_tightest_of_the_groups_around_counts(machine, inner, outer, expected):
    machine("proc/self/cgroup", "0::/slice/job")
    limit = lambda gigabytes: gigabytes if gigabytes == "max" else gigabytes * GB  # noqa: E731
    group_v2(machine, "slice/job", limit(inner), 1 * GB)
    group_v2(machine, "slice", limit(outer), 2 * GB)
    assert capacity.available_memory() == expected * GB


def test_version_1_and_a_path_of_the_host_inside_a_container(machine):
    machine("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc")
    group_v1(machine, "", 6 * GB, 3 * GB, inactive=1 * GB)
    assert capacity.available_memory() == 4 * GB


def test_a_limit_of_version_1_that_is_none(machine):
    machine("proc/self/cgroup", "4:memory:/")
    group_v1(machine, "", 2**63 - 4096, 3 * GB)
    assert capacity.available_memory() == 100 * GB


def test_memory_is_refused_with_the_figures_in_one_line(machine):
    arguments = {"what": "Gramian caches", "remedy": "set estimator.cache: item"}
    capacity.check_capacity(100 * GB, "memory", **arguments)
    with pytest.raises(ConfigError) as caught:
        capacity.check_capacity(502 * GB, "memory", **arguments)
    assert str(caught.value) == (
        "Gramian caches need 502.0 GB of memory, 100.0 GB are available; set estimator.cache: item"
    )


def test_disk_is_that_of_the_nearest_folder_that_exists(tmp_path, monkeypatch):
    asked = []
    usage = namedtuple("usage", "total used free")

    def disk_usage(folder):
        asked.append(folder)
        return usage(10, 7, 3)

    monkeypatch.setattr(capacity.shutil, "disk_usage", disk_usage)
    path = tmp_path / "runs" / "a" / "checkpoint.pt"
    (tmp_path / "runs").mkdir()
    capacity.check_capacity(3, "disk", path=path, what="two checkpoints", remedy="choose another --output")
    with pytest.raises(ConfigError) as caught:
        capacity.check_capacity(
            4, "disk", path=path, what="two checkpoints", remedy="choose another --output"
        )
    assert str(caught.value) == (
        f"two checkpoints need 4 bytes of disk, 3 bytes are available for {path}; choose another --output"
    )
    assert asked == [tmp_path / "runs"] * 2
    capacity.check_capacity(1, "disk", path=Path("relative/to/here"), what="x", remedy="y")
