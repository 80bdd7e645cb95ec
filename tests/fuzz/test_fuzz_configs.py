"""Configurations: any text, hostile YAML, and any value for any key, in a file and by --set."""

from __future__ import annotations

import itertools

import pytest
import yaml
from fuzzing import Refused, budgets, inputs, outcome
from helpers import CONFIGS
from hypothesis import example, given
from hypothesis import strategies as st

from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config.loading import config_hash, dump_config, keys_of, load_config

KINDS = {
    RunConfig: CONFIGS / "synthetic" / "sogram.yaml",
    BaselineConfig: CONFIGS / "movielens-100k" / "exact-als.yaml",
    PrepareConfig: None,
}
KEYS = [(kind, key) for kind in KINDS for key in keys_of(kind)]
PATHS = {
    key for kind in KINDS for key, field in keys_of(kind).items() if "Path" in str(field.annotation)
}  # --set takes what is no text as it stands, a file refuses it

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(f'*{a}' for _ in range(9))}]\n" for a, b in itertools.pairwise("abcdefghijkl")
)
HOSTILE = {
    "billion laughs": LAUGHS + "train: {steps: *l}\nestimator: {alpha_schedule: *l}\nmodel: {hidden: *l}\n",
    "alias of itself": "data: &a {path: *a}\n",
    "deep lists": "[" * 100_000,
    "deep maps": "{a: " * 50_000,
    "deep lists that end": "[" * 100_000 + "]" * 100_000,
    "long scalar": "a" * 200_000,
    "huge integer": "train: {steps: " + "9" * 5_000 + "}",
    "call": "train: !!python/object/apply:os.system ['touch pwned']",
    "date": "data: {path: 2001-01-01}",
    "key twice": "train: {steps: 1, steps: 2}",
    "list key": "? [a, b]\n: 2",
    "two documents": "--- a\n--- b\n",
    "control character": "a: \x07",
    "zero in a path": 'data: {path: "a\\0b"}',
    "empty": "",
}

LARGE = [2**31 - 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, -(10**400), 1e308, 1e-320, -0.0, 1e18]
WORDS = ["1e5", "0x10", "1_000", "yes", "none", "null", "1/n", "1", "exact", "svd", "cuda", "latest", "../x"]
WORDS += ["1 epoch", "500 steps", "5 minutes", "9" * 400 + " epochs", "١ epoch"]
WORDS += ["a" * 5_000, "a\0b", "\u2028", "\x1b[31m", "a\nb"]
scalars = st.one_of(
    st.integers(-3, 3), st.integers(), st.floats(), st.sampled_from(LARGE), st.text(max_size=12),
    st.sampled_from(WORDS), st.none(), st.booleans(), st.dates(), st.binary(max_size=5),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(0, 200), st.floats()), inner, max_size=3),
    ),
    max_leaves=6,
)


def accepted(kind, file):
    """Load; an accepted config survives being dumped and loaded again."""
    config = outcome(load_config, kind, file)
    if isinstance(config, Refused):
        return None
    again = file.with_name("again.yaml")
    again.write_text(dump_config(config), encoding="utf-8")
    assert load_config(kind, again) == config
    assert len(config_hash(config)) == 16
    return config


@budgets(fast=40, slow=10_000)
def test_any_text_is_a_config_or_one_line(examples, tmp_path):
    file = tmp_path / "config.yaml"

    @inputs(examples)
    @given(
        st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)), st.sampled_from(list(KINDS))
    )
    def check(data, kind):
        file.write_bytes(data)
        accepted(kind, file)

    check()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, text = tmp_path / "config.yaml", HOSTILE[name]
    file.write_text(text, encoding="utf-8")
    accepted(RunConfig, file)
    for override in (f"estimator.alpha_schedule={text}", f"{text}=1"):
        outcome(load_config, RunConfig, KINDS[RunConfig], [override])
    assert not (tmp_path / "pwned").exists()


@budgets(fast=60, slow=5_000)
def test_any_value_for_any_key_is_taken_or_one_line(examples, tmp_path):
    """In a file and by --set, which must agree."""
    file = tmp_path / "config.yaml"

    @inputs(examples)
    @given(st.sampled_from(KEYS), values)
    @example((RunConfig, "estimator.alpha_schedule"), {1: 10**400})
    @example((RunConfig, "estimator.alpha_schedule"), {float("inf"): 1})
    @example((RunConfig, "train.steps"), None)
    def check(kind_and_key, value):
        kind, key = kind_and_key
        base = KINDS[kind]
        whole = yaml.safe_load(base.read_text()) if base else {}
        section = whole
        *path, last = key.split(".")
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
        if value is not None:  # null takes no key's place
            section.pop({"steps": "epochs", "epochs": "steps"}.get(last), None)
        file.write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8")
        config = accepted(kind, file)
        text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
        override = f"{key}={text.removesuffix(chr(10)).removesuffix('...').strip()}"
        by_set = outcome(load_config, kind, base, [override])
        if key in PATHS and not isinstance(value, str | None):
            assert config is None
        else:
            assert (config is None) == isinstance(by_set, Refused)
            assert config is None or by_set == config

    check()
