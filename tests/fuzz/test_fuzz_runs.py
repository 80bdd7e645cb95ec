"""Damaged run directories under each command that reads them: texts, checkpoints, embeddings, priors."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from fuzzing import (
    JSON_TOKENS,
    Refused,
    budgets,
    changed,
    changes,
    command,
    inputs,
    leaves_of,
    outcome,
    replaced,
    unseal,
)
from helpers import BASELINE, CONFIG, settings
from hypothesis import example, given
from hypothesis import strategies as st
from test_fuzz_shards import DTYPES, SHAPES, header_bytes, json_values

from gramrun import runs
from gramrun.gramian.low_rank_prior import load_prior
from gramrun.runs import checkpoints

TOKENS = [*JSON_TOKENS, b'"step": ', b'"a"', b"\n", b"{}\n"]


SMALL = ["train.steps=4", "train.batch_size=16", "estimator.gramian_batch_size=16", "evaluation.every=2",
         "gram_error.every=2", "train.checkpoint_every=2", "evaluation.inner_products=50",
         "gram_error.estimators=[{name: sampling, gramian_batch_size: 16}, {name: sogram, gramian_batch_size: 16}]"]  # fmt: skip


@pytest.fixture(scope="module")
def made(corpus_path, tmp_path_factory) -> dict[str, Path]:
    """A training run, a gram-error run and a baseline, all of a few steps."""
    folder = tmp_path_factory.mktemp("runs")
    kinds = {
        "train": (CONFIG, SMALL),
        "gram-error": (CONFIG, SMALL),
        "baseline": (BASELINE, ["baseline.embedding_dim=4", "baseline.sweeps=2"]),
    }
    for kind, (config, chosen) in kinds.items():
        options = settings(f"data.path={corpus_path}", *chosen)
        code, _, error = command(kind, "--config", config, "--output", folder / kind, *options)
        assert code == 0, error
    unseal(folder)
    return {kind: folder / kind for kind in kinds}


def commands_on(kind: str, run: Path, output: Path) -> list[list[object]]:
    """The commands that read a run of this kind."""
    if kind == "baseline":
        return [["evaluate", run, "--full"]]
    if kind == "train":
        return [
            ["evaluate", run],
            ["train", "--output", run, "--resume"],
            *(["plot", figure, run, "--output", output] for figure in ("map", "inner-products", "gravity")),
        ]
    return [
        ["gram-error", "--output", run, "--resume"],
        *(["plot", figure, run, "--output", output] for figure in ("gram-error", "trade-off", "theory")),
    ]


TEXTS = [
    ("train", "manifest.json"), ("train", "metrics.jsonl"), ("train", "config.yaml"), ("train", "inner_products.csv"),
    ("gram-error", "manifest.json"), ("gram-error", "gram_error.csv"), ("gram-error", "trajectory.csv"),
    ("baseline", "manifest.json"), ("baseline", "metrics.jsonl"), ("baseline", "evaluation.json"),
]  # fmt: skip


OTHER_SIDE = b"step,side,gramian_norm,variance,drift,reference_error\n1,other,1,1,0,0\n"  # of a trajectory
NAMELESS = b"step,epoch,estimator,batch_size,alpha,side,error\n1,1,,16,,left,0.5\n1,1,,16,,right,0.5\n"


@pytest.fixture
def copy(made, tmp_path):
    """A fresh copy of a run of a kind, always at the same path."""

    def fresh(kind: str) -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        return Path(shutil.copytree(made[kind], tmp_path / "run"))

    return fresh


@pytest.fixture
def use(copy, tmp_path):
    """Copy a run, change one of its files, and run one of the commands that read it."""

    def run_command(kind: str, name: str, change, which: int) -> None:
        run = copy(kind)
        (run / name).write_bytes(change((run / name).read_bytes()))
        possible = commands_on(kind, run, tmp_path / "figure.png")
        _, _, error = command(*possible[which % len(possible)])
        assert "wrong checksum" not in error and "wrong SHA-256" not in error

    return run_command


@budgets(fast=8, slow=500)
def test_damaged_texts_of_a_run_are_read_or_one_line(examples, use):
    @inputs(examples)
    @given(st.sampled_from(TEXTS), st.one_of(changes(TOKENS), st.binary(max_size=30)), st.integers(0, 9))
    @example(("train", "metrics.jsonl"), b"[" * 100_000 + b"\n", 0)
    @example(("train", "metrics.jsonl"), b"{}\n", 2)
    @example(("train", "metrics.jsonl"), b"\xff\n", 1)
    @example(("train", "metrics.jsonl"), b'{"step": 2, "loss": 1' + b"0" * 400 + b"}\n", 2)
    @example(("train", "manifest.json"), b'{"a":' * 100_000, 0)
    @example(("baseline", "metrics.jsonl"), b"", 0)
    @example(("gram-error", "trajectory.csv"), OTHER_SIDE, 3)
    @example(("gram-error", "gram_error.csv"), NAMELESS, 1)
    def check(place, damage, which):
        use(*place, lambda whole: damage if isinstance(damage, bytes) else changed(whole, damage), which)

    check()


@budgets(fast=8, slow=500)
def test_any_value_in_a_run_s_json_is_accepted_or_one_line(examples, made, use):
    """In the manifest, in the first line of metrics, in the evaluation of a baseline."""
    places = [
        (kind, name, path)
        for kind, name in TEXTS
        if name.endswith((".json", ".jsonl"))
        for path in leaves_of(json.loads(split((made[kind] / name).read_text(), name)[0]))
    ]

    @inputs(examples)
    @given(st.sampled_from(places), st.one_of(st.just("remove"), json_values), st.integers(0, 9))
    def check(place, value, which):
        kind, name, path = place

        def change(whole: bytes) -> bytes:
            first, rest = split(whole.decode(), name)
            return f"{json.dumps(replaced(json.loads(first), path, value))}\n{rest}".encode()

        use(kind, name, change, which)

    check()


def split(text: str, name: str) -> tuple[str, str]:
    """The first JSON document of a text, and the rest."""
    first, _, rest = text.partition("\n") if name.endswith(".jsonl") else (text, "", "")
    return first, rest


class _Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("way", ["zip", "legacy", "pickle", "hidden in a state"])
def test_a_checkpoint_cannot_run_code(way, copy, tmp_path):
    run = copy("train")
    for path in (run / "checkpoints").iterdir():
        if way == "pickle":
            path.write_bytes(pickle.dumps(_Payload(tmp_path / "pwned")))
        else:
            state = torch.load(path, weights_only=True)
            state["extra" if way == "hidden in a state" else "x"] = _Payload(tmp_path / "pwned")
            torch.save(state, path, _use_new_zipfile_serialization=way != "legacy")
    for arguments in (["evaluate", run], ["train", "--output", run, "--resume"]):
        code, _, error = command(*arguments)
        assert code == 2, error
        assert "none of its 2 checkpoints is whole" in error
    assert not (tmp_path / "pwned").exists()


states = st.recursive(
    st.one_of(
        st.none(),
        st.integers(-5, 10**6),
        st.floats(),
        st.text(max_size=5),
        st.builds(
            lambda shape, dtype: torch.zeros(shape, dtype=dtype),
            st.sampled_from([(), (0,), (3,), (80, 4), (1, 1), (0, 5)]),
            st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16]),
        ),
        st.just(torch.zeros(1).expand(10**9)),
        st.just(torch.full((3,), float("nan"))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=3,
)


@budgets(fast=8, slow=500)
def test_any_state_in_a_checkpoint_is_taken_or_one_line(examples, made, copy):
    """Intact files whose states have other shapes or types than the run's."""
    source = runs.open_run(made["train"]).checkpoints()[-1]
    places = leaves_of(torch.load(source, weights_only=True))

    @inputs(examples)
    @given(st.sampled_from(places), st.one_of(st.just("remove"), states), st.booleans())
    @example(("extra", "losses"), torch.zeros(1, 1), True)
    @example(("trainer", "train_seconds"), None, True)
    @example(("trainer", "model"), None, True)
    @example(("trainer", "model"), None, False)
    @example(("trainer", "model"), "remove", False)
    @example(("trainer", "left_estimator"), None, True)
    @example(("trainer", "optimizer"), torch.zeros(3), True)
    @example(("trainer", "optimizer", "accumulated"), torch.zeros(()), True)
    @example(("trainer", "step"), -1, True)
    @example(next(p for p in places if p[:2] == ("trainer", "model") and len(p) == 3), 1, True)
    def check(place, value, resume):
        run = copy("train")
        state = replaced(torch.load(source, weights_only=True), place, value)
        for path in (run / "checkpoints").iterdir():
            path.unlink()
        torch.save(state, run / "checkpoints" / source.name)
        resumed = ["train", "--output", run, "--resume", "--set", "train.steps=6"]
        command(*(resumed if resume else ["evaluate", run]))

    check()


@budgets(fast=15, slow=2_000)
def test_a_damaged_checkpoint_is_torn(examples, made, tmp_path):
    source = runs.open_run(made["train"]).checkpoints()[-1].read_bytes()
    path = tmp_path / "step-000000004.pt"

    @inputs(examples)
    @given(
        changes(
            [b"PK\x03\x04", b"PK\x01\x02", b"\x80\x02", b"cos\nsystem\n", b"\x08\x00", b"\xff\xff\xff\xff"]
        )
    )
    def check(damage):
        path.write_bytes(changed(source, damage))
        state = outcome(checkpoints.load, path)
        if not isinstance(state, Refused):
            assert set(state) == {"schema_version", "identity", "trainer", "extra"}

    check()


def test_a_checkpoint_that_is_packed_is_refused(made, tmp_path):
    """torch stores; 500 MB of zeros in 500 kB would be unpacked to memory."""
    source, path = runs.open_run(made["train"]).checkpoints()[-1], tmp_path / "bomb.pt"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, bytes(200 << 20) if member.endswith("/data/0") else old.read(member))
    assert path.stat().st_size < 1 << 20
    assert "torn or damaged" in str(outcome(checkpoints.load, path))


arrays = st.one_of(
    st.builds(
        lambda descr, shape, fortran, data: header_bytes(descr, shape, fortran, (1, 0)) + data,
        st.sampled_from(DTYPES),
        st.sampled_from([*SHAPES, (120, 4), (80, 4), (120, 0), (120, 10**9), (4, 120)]),
        st.booleans(),
        st.sampled_from([b"", b"x" * 64, bytes(120 * 4 * 4), bytes(80 * 4 * 4), b"\xff" * (120 * 4 * 8)]),
    ),
    st.binary(max_size=20),
)


@budgets(fast=15, slow=1_000)
def test_any_embeddings_and_priors_fit_or_are_refused(examples, copy):
    run = copy("baseline")
    whole = (run / "embeddings.npz").read_bytes()

    @inputs(examples)
    @given(
        st.one_of(
            st.dictionaries(
                st.sampled_from(["left.npy", "right.npy", "left", "../x.npy"]), arrays, max_size=3
            ),
            changes([b"PK\x03\x04", b"left", b"<f4", b"<f8", b"|O", b"(120, 4)", b"(80, 4)", b"NUMPY"]),
        )
    )
    def check(damage):
        path = run / "embeddings.npz"
        if isinstance(damage, dict):
            with (
                zipfile.ZipFile(io.BytesIO(whole)) as old,
                zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
            ):
                kept = {name: old.read(name) for name in old.namelist()}
                for name, data in {**kept, **damage}.items():
                    new.writestr(name, data)
        else:
            path.write_bytes(changed(whole, damage))
        command("evaluate", run, "--full")
        prior = outcome(load_prior, path, 120, 80)
        if not isinstance(prior, Refused):
            assert (prior.left.shape[0], prior.right.shape[0]) == (120, 80)
            assert torch.isfinite(prior.left).all() and torch.isfinite(prior.right).all()

    check()
