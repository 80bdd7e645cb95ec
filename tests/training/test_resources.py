"""What a run would need, predicted, held against what it takes: real processes, as the kernel counts them."""

from pathlib import Path

import pytest
import yaml

from experiments.benchmarks.growth import peak_of_training, predicted_peak
from experiments.benchmarks.random_pages import pages_corpus
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.model.build import make_model
from gramrun.training.host_memory import count_parameters, evaluation_bytes, mapped_bytes

PAPER = Path(__file__).parents[2] / "configs" / "wikipedia-simple" / "paper-sogram.yaml"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A corpus beside which the process itself is large."""
    return pages_corpus(tmp_path_factory.mktemp("small") / "pages", pages=4000, links=40_000)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """One whose tables, sums, caches and files are as large as the process."""
    folder = tmp_path_factory.mktemp("large") / "pages"
    return pages_corpus(folder, pages=400_000, links=1_500_000, ngrams=40_000, categories=30_000)


def settings(corpus, *more):
    return [f"data.path={corpus.path}", *more]


@pytest.mark.parametrize(
    "shape",
    [
        ("model.hidden=[]",),
        ("model.hidden=[7]",),
        ("model.hidden=[9, 7]", "model.skip=true", "model.input_dim=5"),
    ],
)
def test_parameters_are_counted_without_making_them(small, shape):
    config = load_config(RunConfig, PAPER, settings(small, *shape))
    assert count_parameters(config, small) == sum(p.numel() for p in make_model(config, small).parameters())


def test_files_that_a_run_maps(small):
    both = load_config(RunConfig, PAPER, settings(small))
    one = load_config(RunConfig, PAPER, settings(small, "evaluation.splits=[train]"))
    files = small.manifest["files"]
    validation = sum(files[f"pairs/validation_{side}.npy"]["bytes"] for side in ("left", "right"))
    assert mapped_bytes(both, small) - mapped_bytes(one, small) == validation
    sides = [file["bytes"] for name, file in files.items() if name.endswith((".offsets.npy", ".indices.npy"))]
    train = sum(files[f"pairs/train_{side}.npy"]["bytes"] for side in ("left", "right"))
    assert mapped_bytes(one, small) == sum(sides) + train


def test_an_evaluation_of_fewer_left_items_or_candidates_takes_less(small):
    def needed(*more):
        return evaluation_bytes(load_config(RunConfig, PAPER, settings(small, *more)), small)

    assert needed() > needed("evaluation.left_items=100") > 0
    assert needed() > needed("evaluation.candidates=100") > 0
    assert needed() > needed("evaluation.splits=[validation]") > 0


def test_the_peak_of_a_small_run(small, tmp_path):
    chosen = settings(small, "train.epochs=null", "train.steps=50")
    assert predicted_peak(PAPER, chosen) == pytest.approx(peak_of_training(PAPER, chosen, tmp_path), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ("estimator.name=sogram", "evaluation.left_items=1000", "evaluation.candidates=1000"),
        ("estimator.name=sogram", "evaluation.splits=[validation]", "evaluation.left_items=20000"),
        ("estimator.name=sagram", "evaluation.left_items=1000"),
        ("estimator.name=sagram", "estimator.cache=pair", "evaluation.left_items=1000"),
        ("train.engine=plain", "evaluation.left_items=1000"),
        ("train.optimizer=adam", "train.steps=20", "evaluation.left_items=1000"),
        ("model.hidden=[]", "evaluation.left_items=1000"),
    ],
    ids=" ".join,
)
def test_the_peak_of_a_large_run(large, tmp_path, more):
    config = yaml.safe_load(PAPER.read_text())
    config["train"] |= {"epochs": None, "steps": 400}
    if "estimator.name=sagram" in more:
        config["estimator"] = {"beta": 1, "gramian_batch_size": 1024, "name": "sagram"}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    chosen = settings(large, *more)
    peak = peak_of_training(file, chosen, tmp_path / "run")
    assert predicted_peak(file, chosen) == pytest.approx(peak, rel=0.1)
