"""YAML files and overrides of every kind of configuration: any text, hostile YAML, wrong values for every key."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml
from fuzzing import Refused, budgets, inputs, outcome
from hypothesis import example, given
from hypothesis import strategies as st

from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config.loading import config_hash, dump_config, keys_of, load_config

CONFIGS = Path(__file__).parents[2] / "configs"
KINDS = {
    RunConfig: CONFIGS / "synthetic" / "sogram.yaml",
    BaselineConfig: CONFIGS / "movielens-100k" / "exact-als.yaml",
    PrepareConfig: None,
}
KEYS = [(kind, key) for kind in KINDS for key in keys_of(kind)]

# Each says something of YAML that a reader could trip over.
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join(f'*{a}' for _ in range(9))}]\n" for a, b in itertools.pairwise("abcdefghijkl")
)
HOSTILE = [
    LAUGHS,
    LAUGHS + "train: *l\n",
    LAUGHS + "train: {steps: *l}\n",
    LAUGHS + "evaluation: {every: *l}\n",
    LAUGHS + "estimator: {name: *l, alpha_schedule: *l}\n",
    LAUGHS + "data: {path: *l}\nmodel: {hidden: *l}\n",
    "data: &a [*a]\n",
    "data: &a {path: *a}\n",
    "train: &a\n  <<: *a\n",
    "[" * 5_000,
    "{a: " * 5_000,
    "- " * 5_000,
    "? " * 5_000,
    "a" * 200_000,
    "train: {steps: " + "9" * 4_000 + "}",
    "train: {steps: " + "9" * 5_000 + "}",
    "train: {steps: 0x" + "f" * 9_000 + "}",
    "train: {steps: " + "1:" * 3_000 + "1}",
    "train: {epochs: 1e999}",
    "train: {epochs: .nan}",
    "train: !!python/object/apply:os.system ['touch pwned']",
    "train: !!python/name:os.system",
    "train: !!python/object/new:os.system [touch pwned]",
    "!!python/module:os",
    "train: !!binary aGVsbG8=",
    "train: !!set {a, b}",
    "train: !!omap [a: 1]",
    "train: !!timestamp 2001-99-99",
    "data: {path: 2001-01-01}",
    "train: {steps: 1, steps: 2}",
    "1: 2",
    "null: 2",
    "? [a, b]\n: 2",
    "? {a: b}\n: 2",
    "2001-01-01: 2",
    "--- a\n--- b\n",
    "%YAML 9.9\n---\na: 1",
    "\ufeffa: 1",
    "a: \x07",
    'data: {path: "a\\0b"}',
    "data: {path: " + "a" * 5_000 + "}",
    "data: {path: " + "a/" * 5_000 + "}",
    "",
    "~",
    "5",
]

numbers = st.one_of(
    st.integers(),
    st.integers(-3, 3),
    st.sampled_from(
        [2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**400, -(10**400)]
    ),
    st.floats(),
    st.sampled_from([1e308, 1e-308, 1e-320, -0.0, 0.5, 1e18]),
)
words = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["1 epoch", "500 steps", "5 minutes", "9" * 400 + " epochs", "1e5", "0x10", "1_000", "٣", "١ epoch"]
    ),
    st.sampled_from(
        ["yes", "none", "null", "1/n", "1", "exact", "svd", "file", "cuda", "latest", "a" * 5_000, "a\0b"]
    ),
    st.sampled_from(["\u2028", "\x1b[31m", "a\nb", "../../x", "/dev/zero", "é" * 300]),
)
scalars = st.one_of(numbers, words, st.none(), st.booleans(), st.dates(), st.binary(max_size=5))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(0, 200), st.floats()), inner, max_size=3),
    ),
    max_leaves=6,
)


def accepted(kind, file):
    """Load; what is accepted must come back as it is from what is written for the run."""
    config = outcome(load_config, kind, file)
    if isinstance(config, Refused):
        return None
    again = file.with_name("again.yaml")
    again.write_text(dump_config(config), encoding="utf-8")
    assert load_config(kind, again) == config
    assert len(config_hash(config)) == 16
    return config


@budgets(fast=150, slow=10_000)
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


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:30])
def test_hostile_yaml_is_one_line(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    accepted(RunConfig, file)
    for override in (f"estimator.alpha_schedule={text}", f"{text}=1"):
        outcome(load_config, RunConfig, KINDS[RunConfig], [override])
    assert not (tmp_path / "pwned").exists()


@budgets(fast=300, slow=5_000)
def test_any_value_for_any_key_is_taken_or_one_line(examples, tmp_path):
    """In a file and by --set, which must agree."""
    file = tmp_path / "config.yaml"

    @inputs(examples)
    @given(st.sampled_from(KEYS), values)
    @example((RunConfig, "estimator.alpha_schedule"), {1: 10**400})
    @example((RunConfig, "estimator.alpha_schedule"), {float("inf"): 1})
    def check(kind_and_key, value):
        kind, key = kind_and_key
        base = KINDS[kind]
        whole = yaml.safe_load(base.read_text()) if base else {}
        section = whole
        *path, last = key.split(".")
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
        for other in {"steps": ["epochs"], "epochs": ["steps"]}.get(last, ()):
            section.pop(other, None)
        file.write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8")
        config = accepted(kind, file)
        text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
        override = f"{key}={text.removesuffix(chr(10)).removesuffix('...').strip()}"
        by_set = outcome(load_config, kind, base, [override])
        assert (config is None) == isinstance(by_set, Refused)
        assert config is None or by_set == config

    check()
