"""Configuration files and overrides: read, written back, and refused in one line that names the key."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramrun.base.errors import ConfigError
from gramrun.config import BaselineConfig, Interval, PrepareConfig, RunConfig, TimedInterval
from gramrun.config.loading import config_hash, config_hashes, dump_config, load_config

TEXT = """\
data:
  path: data/x
estimator:
  name: sogram
  alpha: 0.1
train:
  epochs: 2
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    return path


def test_overrides_are_applied_in_order(file):
    config = load_config(
        RunConfig, file, ["estimator.alpha=0.5", "estimator.alpha=0.25", "model.hidden=[8, 4]"]
    )
    assert config.estimator.alpha == 0.25
    assert config.model.hidden == (8, 4)


def test_steps_and_epochs_replace_each_other(file):
    config = load_config(RunConfig, file, ["train.steps=7"])
    assert (config.train.steps, config.train.epochs) == (7, None)
    back = load_config(RunConfig, file, ["train.steps=7", "train.steps=null", "train.epochs=3"])
    assert (back.train.steps, back.train.epochs) == (None, 3)
    with pytest.raises(ConfigError, match=r"^--set train.epochs=3: give it or --set train.steps=7, not both"):
        load_config(RunConfig, file, ["train.steps=7", "train.epochs=3"])


@pytest.mark.parametrize("path", ["data #1", "2024", "a: b", "[x]"])
def test_a_path_is_taken_as_it_is(file, path):
    assert load_config(RunConfig, file, [f"data.path={path}"]).data.path == Path(path)
    assert load_config(RunConfig, file, [f'data.path="{path}"']).data.path == Path(path)


def test_dump_reads_back_to_the_same(file, tmp_path):
    config = load_config(
        RunConfig,
        file,
        [
            "evaluation.every=2 epochs",
            "estimator.beta=1/n",
            "train.checkpoint_every=50",
            "train.prior={name: file, path: priors/p.npz}",
        ],
    )
    assert config.train.prior.path == Path("priors/p.npz")
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_config(config))
    assert load_config(RunConfig, copy) == config
    assert config_hash(load_config(RunConfig, copy)) == config_hash(config)
    assert config_hash(load_config(RunConfig, copy, ["train.seed=1"])) != config_hash(config)


BAD_OVERRIDES = {
    "estimator.alpah=1": "--set estimator.alpah=1: unknown key estimator.alpah; did you mean estimator.alpha?",
    "estimator.alpha=0": "--set estimator.alpha=0: estimator.alpha: input should be greater than 0 (given: 0)",
    "estimator.name=sgram": "estimator.name: input should be 'sampling', 'sogram', 'sagram', ",
    "estimator.alpha_schedule={1: 1, 9: 1.5}": "estimator.alpha_schedule: alpha must lie in (0, 1], but at step 9 it is 1.5",
    "estimator={name: sogram, debias: true, start: exact}": "debias, start: exact and alpha_schedule: decaying all correct the zero start",
    "gram_error.estimators=[{name: sogram}, {name: sogram, rebuild_every: 3}]": "gram_error.estimators holds SOGram α=0.01 twice at gramian_batch_size 1024",
    "estimator={name: control-variate, batch: previous}": "control-variate needs a batch independent of the last step",
    "estimator={name: sagram, batch: previous}": "caches of SAGA need a batch drawn independently of them",
    "estimator={name: exact, batch: previous}": "exact observes the whole corpus",
    "estimator={name: none}": "estimator.name: none goes with train.objective: batch-softmax, or with train.gravity: 0",
    "estimator={name: sampling, batch: previous, gramian_batch_size: 7}": "gramian_batch_size must be train.batch_size",
    "train.objective=batch-softmax": "batch-softmax has no Gramians; set estimator.name: none",
    "train.epochs=null": "give exactly one of train.epochs and train.steps",
    "model.skip=true": "skip: true needs hidden layers",
    "train.prior.name=svd": "train.prior: name: svd needs a rank; set train.prior.rank",
    "train={epochs: 1, optimizer: adam, momentum: 0.999}": "train: momentum above 0.998 needs engine: plain with optimizer: adam",
    "train.momentum=0.5": "train: momentum is for optimizer: adam and sparse-adam only; drop it",
    "train.prior.rank=3": "train.prior: rank is for name: svd only; drop it, or set train.prior.name: svd",
    "data=3": "data must be a section with keys of its own, not 3",
    "estimator.rebuild_every=5 minutes": "--set estimator.rebuild_every=5 minutes: estimator.rebuild_every: minutes would let "
    "the machine's speed change the result",
    "gram_error.estimators=[{name: sogram, alhpa: 1}]": "--set gram_error.estimators=[{name: sogram, alhpa: 1}]: "
    "unknown key gram_error.estimators.0.alhpa; did you mean gram_error.estimators.0.alpha?",
    "evaluation.splits.0.x.y=1": "--set evaluation.splits.0.x.y=1: evaluation.splits.0 has no entry x",
    "evaluation.splits.².x=1": "--set evaluation.splits.².x=1: evaluation.splits has no entry ²",
    "train.seed=[": "--set train.seed=[: not valid YAML",
    "train={seed: 1, seed: 2}": "train={seed: 1, seed: 2}: not valid YAML: seed is given twice",
}


@pytest.mark.parametrize("override", BAD_OVERRIDES)
def test_bad_overrides_are_one_line(file, override):
    with pytest.raises(ConfigError) as caught:
        load_config(RunConfig, file, ["gram_error.estimators=[]", "evaluation.splits=[train]", override])
    assert BAD_OVERRIDES[override] in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_FILES = {
    "typo": (
        TEXT.replace("alpha", "alpah"),
        "line 5: unknown key estimator.alpah; did you mean estimator.alpha?",
    ),
    "wrong type": (
        TEXT.replace("epochs: 2", "epochs: two"),
        "line 7: train.epochs: input should be a valid number",
    ),
    "missing section": ("data: {path: x}\ntrain: {epochs: 1}\n", "estimator is missing"),
    "twice": (
        TEXT + "  epochs: 3\n",
        "line 8: not valid YAML: train.epochs is given twice (first on line 7)",
    ),
    "not YAML": (TEXT + "  [", "not valid YAML"),
    "alias": (
        TEXT.replace("2", "&a 2\n  l2: *a"),
        "line 8: not valid YAML: it has an alias; write the value out",
    ),
    "empty": ("", "must hold sections"),
    "nested list": (
        TEXT + "gram_error:\n  estimators:\n    - {name: sogram}\n    - {name: sogram, alpha: 7}\n",
        "line 11: gram_error.estimators.1.alpha",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_one_line_with_file_and_line(tmp_path, name):
    text, expected = BAD_FILES[name]
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(RunConfig, path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_beside_a_merged_one_is_not_given_twice(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(TEXT.replace("train:", "train:\n  <<: {epochs: 5, batch_size: 8}"))
    train = load_config(RunConfig, path).train
    assert (train.epochs, train.batch_size) == (2, 8)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_config(RunConfig, tmp_path / "absent.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read as UTF-8"):
        load_config(RunConfig, tmp_path / "b.yaml")


@pytest.mark.parametrize(
    ("text", "pairs", "expected"),
    [("500", 10_000, 500), ("0.5 epochs", 10_000, 5), ("0", 10_000, 0), ("1 epoch", 10, 1)],
)
def test_intervals(text, pairs, expected):
    assert Interval.model_validate(text).steps(pairs, batch_size=1000) == expected


def test_steps_are_whole_however_they_are_given():
    with pytest.raises(ValueError, match="2.5 steps is no whole number of steps"):
        Interval(count=2.5, unit="steps")
    assert str(Interval(count=-0.0, unit="steps")) == "0 steps"


@given(
    st.integers(0, 10**12).map("{} steps".format)
    | st.decimals(0, 10**6, places=9).map("{:f} epochs".format)
    | st.decimals(0, 10**6, places=9).map("{:f} minutes".format)
)
def test_an_interval_reads_back_what_it_writes(text):
    interval = TimedInterval.model_validate(text)
    assert TimedInterval.model_validate(str(interval)) == interval
    assert interval.unit == text.split()[1]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("estimator={name: sagram, cache: pair}", "cache: pair needs train.gamma_left and gamma_right of 1"),
        ("train.objective=taylor-softmax", "is a mean over pairs; set train.gamma_left: 1"),
    ],
)
def test_what_needs_the_weights_of_the_paper(file, override, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(RunConfig, file, ["gram_error.estimators=[]", "train.gamma_left=0.5", override])
    assert str(caught.value).startswith(f"{file}: ")
    load_config(RunConfig, file, ["gram_error.estimators=[]", override])


def test_baselines_have_their_own_keys(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("data: {path: d}\nbaseline: {name: exact-als}\n")
    changed = load_config(BaselineConfig, file, ["baseline.gamma_right=0.5"])
    assert changed.baseline.label == "exact ALS λ=30 γ=0,0.5"
    for override, message in {
        "baseline.gama_left=1": "unknown key baseline.gama_left; did you mean baseline.gamma_left?",
        "baseline.name=als": "baseline.name: input should be 'popularity', 'implicit-als', 'exact-als', 'ease', "
        "'feature-popularity' or 'tfidf'",
        "train.epochs=1": "unknown key train; it is a section of configurations of `gramrun train`",
        "trian.epochs=1": "unknown key trian; valid sections are data, baseline, evaluation",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load_config(BaselineConfig, file, [override])
        assert f"--set {override}: {message}" in str(caught.value)


def test_prepare_has_its_own_keys():
    assert load_config(PrepareConfig, None, ["split.seed=3"]).split.seed == 3
    with pytest.raises(ConfigError, match="did you mean split.seed"):
        load_config(PrepareConfig, None, ["split.sed=3"])
    with pytest.raises(ConfigError, match="pairs_per_left_item cannot exceed right_items"):
        load_config(PrepareConfig, None, ["synthetic.right_items=5"])


@pytest.mark.parametrize(
    ("setting", "date"),
    [("20260101", "20260101"), ("2026-01-01", "20260101"), ("latest", "latest")],
)
def test_a_date_is_a_date_however_yaml_reads_it(setting, date):
    assert load_config(PrepareConfig, None, [f"dump.date={setting}"]).dump.date == date


def test_configurations_keep_the_hashes_of_earlier_versions():
    """So that runs of those versions still open; 0.1.0 gave the shipped synthetic/sogram the last one."""
    config = load_config(RunConfig, Path("synthetic/sogram"))
    assert config_hashes(config)[0] == config_hash(config)
    assert len(set(config_hashes(config))) == 7
    assert config_hashes(config)[-1] == "1eeb5f40a1a392d0"
    newer = load_config(RunConfig, Path("synthetic/sogram"), ["train.l2=0.1"])
    assert len(config_hashes(newer)) == 5  # without the keys that came after l2, no more
