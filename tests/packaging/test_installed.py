"""Installed as a user installs it, in an environment of its own, and run in an empty folder."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from building import ROOT, build, copy_tree

from gramrun import __version__

pytestmark = pytest.mark.slow


def environment(folder: Path) -> Path:
    """A virtual environment that has this one's packages but for gramrun; its bin folder."""
    venv.create(folder, with_pip=False)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A folder that a .pth file names is searched, but its own .pth files, an editable gramrun's, are not read.
    (folder / "lib" / python / "site-packages" / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def run(arguments: list[object], folder: Path) -> str:
    """Run a program in `folder`, without the checkout in sight; what it printed."""
    hidden = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "GRAMRUN_RAW")}
    done = subprocess.run(
        list(map(str, arguments)), cwd=folder, env=hidden, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pip_install(binary: Path, *what: object) -> None:
    pip = [sys.executable, "-m", "pip", "--python", binary / "python", "install", "--no-index", "--no-deps"]
    run([*pip, "--no-build-isolation", *what], binary)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    return build(tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("kind", [0, 1], ids=["sdist", "wheel"])
def test_an_installed_distribution_does_it_all_in_an_empty_folder(tmp_path, distributions, kind):
    binary, empty = environment(tmp_path / "environment"), tmp_path / "empty"
    empty.mkdir()
    pip_install(binary, distributions[kind])

    def gramrun(*arguments: object) -> str:
        return run([binary / "gramrun", *arguments], empty)

    where = run([binary / "python", "-c", "import gramrun; print(gramrun.__file__)"], empty)
    assert Path(where.strip()).is_relative_to(tmp_path)
    code = "from importlib.metadata import version; print('gramrun', version('gramrun'))"
    assert gramrun("--version") == run([binary / "python", "-c", code], empty) == f"gramrun {__version__}\n"

    _, _, following = gramrun("prepare", "synthetic", "--output", "data/synthetic").partition(
        "next: gramrun "
    )
    assert following == "train --config synthetic/sogram --set data.path=data/synthetic\n"
    _, _, following = gramrun(*following.split()).partition("next: gramrun ")
    assert following == "evaluate runs/synthetic/sogram-seed0\n"
    _, _, following = gramrun(*following.split()).partition("next: gramrun ")
    gramrun(*following.split())
    assert (empty / "map.png").stat().st_size > 1000
    gramrun("baseline", "--config", "configs/synthetic/exact-als.yaml")
    assert (empty / "runs/synthetic/exact-als-seed0/embeddings.npz").exists()
    gramrun("gram-error", "--config", "synthetic/sogram", "--set", "train.epochs=1", "--output", "errors")
    assert "memory:" in gramrun("doctor", "--config", "configs/synthetic/sogram")
    assert {path.name for path in empty.iterdir()} == {"data", "runs", "errors", "map.png"}


def test_an_editable_install_finds_its_configs_beside_it(tmp_path):
    tree, binary = copy_tree(tmp_path / "tree"), environment(tmp_path / "environment")
    pip_install(binary, "--editable", tree)
    (tree / "configs" / "synthetic" / "own.yaml").write_text("data: {path: mine}\ntrain: {steps: 1}\n")
    code = "from pathlib import Path; from gramrun.config.shipped import find_config as find; "
    found = run([binary / "python", "-c", f"{code}print(find(Path('synthetic/own')))"], tmp_path)
    assert Path(found.strip()) == tree / "configs" / "synthetic" / "own.yaml"
    assert run([binary / "gramrun", "--version"], tmp_path) == f"gramrun {__version__}\n"


def test_a_users_mypy_sees_the_types(tmp_path, distributions):
    binary = environment(tmp_path / "environment")
    pip_install(binary, distributions[1])
    (tmp_path / "mine.py").write_text(
        "from gramrun.config.shipped import config_for\n"
        "name: str = config_for('enwik8')\nnumber: int = config_for('enwik8')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", binary / "python", "mine.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[:-1] == [
        'mine.py:3: error: Incompatible types in assignment (expression has type "str", variable has type "int")'
        "  [assignment]"
    ]


def test_the_checkout_says_its_version_without_being_installed(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv[1:] = ['--version']; import gramrun.__main__ as m; m.main()"
    assert run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); {code}",
        ],
        tmp_path,
    ) == (f"gramrun {__version__}\n")
