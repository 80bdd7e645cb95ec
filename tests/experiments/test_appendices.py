"""The items of Appendices B and D: at toy size from tasks to section, and their words against made numbers."""

from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments.report.sections import write_tables
from experiments.reproduce.items import error_at_scale, inner_products
from experiments.reproduce.plans import Plan

SETTINGS = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"


@pytest.fixture
def toy(tmp_path, corpus_path, gramrun):
    """A folder with a small corpus and configs under the names that the items use; gramrun runs there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy").symlink_to(corpus_path)
    folder = tmp_path / "configs" / "toy"
    folder.mkdir(parents=True)
    config = yaml.safe_load(SETTINGS.read_text())
    config["train"] |= {"epochs": 2, "batch_size": 64, "dense_learning_rate": 0.001}
    config["evaluation"]["every"] = "1 epoch"
    for name in ("paper-sogram", "gram-error"):
        config["estimator"]["name"] = "sogram" if name == "paper-sogram" else "sampling"
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))

    def run(item, **options):
        plan = Plan(
            item.__name__.rpartition(".")[2], ("toy",), (0, 1), options, tmp_path / "results" / "made"
        )
        for task in item.tasks(plan):
            code, _, err = gramrun(*task.arguments())
            assert code == 0, err
        plan.folder.mkdir(parents=True)
        section = item.section(plan)
        write_tables(plan.folder, section.tables)
        return plan, section

    return run


def test_inner_products_at_toy_size(toy):
    plan, section = toy(inner_products, gravity=[0.01, 1, 10], shown=[0.01, 10], pairs=200)
    assert sorted(path.name for path in plan.folder.iterdir()) == sorted(
        [f"{figure.name}{suffix}" for figure in section.figures for suffix in (".png", ".svg")]
        + [f"{table.name}.csv" for table in section.tables]
    )
    assert len(section.runs) == 6
    assert all((run / "inner_products.csv").exists() for run in section.runs)
    measured = section.measured
    for gravity in ("0.01", "1", "10"):
        assert len(measured[f"toy/SOGram α=0.01/validation MAP λ={gravity}"]) == 2
    # Gravity is the mean square of random pairs: the heavier, the smaller.
    random = [
        [
            mean**2 + sd**2
            for mean, sd in zip(
                *(measured[f"toy/SOGram α=0.01/random inner product {c} λ={g}"] for c in ("mean", "sd")),
                strict=True,
            )
        ]
        for g in ("0.01", "10")
    ]
    assert all(light > heavy for light, heavy in zip(*random, strict=True))
    last = pd.read_csv(section.runs[0] / "inner_products.csv").query("pairs == 'train'").iloc[-1]
    assert measured["toy/SOGram α=0.01/observed inner product mean λ=0.01"][0] == last["mean"]
    assert list(section.tables[1].frame["λ"]) == ["0.01", "1", "10", "popularity"]


def test_error_at_scale_at_toy_size(toy):
    plan, section = toy(
        error_at_scale, samples=500, learning_rates=[0.05, 0.01], alphas=[0.5, 0.1], steps=30, every=2
    )
    assert {path.suffix for path in plan.folder.iterdir()} == {".png", ".svg", ".csv"}
    assert len(section.runs) == 4
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in section.runs]
    assert [c["train"]["learning_rate"] for c in configs] == [0.05, 0.05, 0.01, 0.01]
    ratio = 0.001 / yaml.safe_load(SETTINGS.read_text())["train"]["learning_rate"]
    for c in configs:
        rate = c["train"]["learning_rate"]
        assert c["train"]["dense_learning_rate"] == pytest.approx(rate * ratio, rel=1e-5)
    assert {c["gram_error"]["reference"] for c in configs} == {"sampled"}
    assert all(len(run.name) < 200 for run in section.runs)
    measured = section.measured
    for alpha in ("0.5", "0.1"):
        for rate in ("0.05", "0.01"):
            of = f"toy/SOGram α={alpha}"
            decay, early, late = (
                measured[f"{of}/{what} η={rate}"] for what in ("error decay", "early error", "late error")
            )
            assert decay == pytest.approx([b / a for a, b in zip(early, late, strict=True)])
    assert measured["toy/scale trajectory steps"] == (30.0,)
    assert all(f"toy/SOGram α={a}/settling steps η=0.01" in measured for a in ("0.5", "0.1"))
    drifts = [measured[f"toy/SOGram α=0.5/relative drift η={rate}"] for rate in ("0.05", "0.01")]
    assert all(fast > slow for fast, slow in zip(*drifts, strict=True))


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([8, 4, 1, 1], 30 - 10 / 2),  # 2 is half-way from 4 to 1 in logarithms
        ([9, 1, 4, 1], 40 - 10 / 2),
        ([1, 1, 1, 1], 10),
        ([9, 9, 9, 9], float("inf")),
        ([9, 1, 1, 2], float("inf")),
    ],
)
def test_an_error_has_settled_where_it_stays_low(errors, expected):
    curve = pd.Series(errors, index=[10, 20, 30, 40], dtype=float)
    assert error_at_scale.settled(curve, 2.0) == pytest.approx(expected)


def test_decay_of_known_curves():
    """Error 1/t against 10/t, each over 100 steps: both settle at twice the slower one's late error."""
    curves = [
        pd.DataFrame({"step": range(1, 101), "error": [c / t for t in range(1, 101)]}).assign(
            side="left", seed=seed, learning_rate=rate, label="SOGram α=0.1", alpha=0.1, relative_drift=rate
        )
        for rate, c in ((0.01, 10.0), (0.002, 1.0))
        for seed in (0, 1)
    ]
    measured = error_at_scale.decay("toy", pd.concat(curves))
    late = sum(10 / t for t in range(81, 101)) / 20
    of = "toy/SOGram α=0.1"
    assert measured[f"{of}/late error η=0.01"] == pytest.approx((late, late))
    assert measured[f"{of}/early error η=0.01"] == (1.0, 1.0)
    assert measured[f"{of}/error decay η=0.002"] == pytest.approx((late, late))
    for rate, c in ((0.01, 10.0), (0.002, 1.0)):  # within a step of where c/t is 2 · late
        crossing = c / (2 * late)
        assert measured[f"{of}/settling steps η={rate}"] == pytest.approx((crossing, crossing), rel=0.01)


def test_while_the_zero_start_lasts_nothing_has_settled():
    """(1 − 0.001)^100 = 0.90: the error of a curve at that level is its start."""
    curve = pd.DataFrame({"step": range(1, 101), "error": [0.999**t for t in range(1, 101)], "alpha": 0.001})
    frames = [
        curve.assign(side="left", seed=0, learning_rate=rate, label="SOGram α=0.001", relative_drift=0.0)
        for rate in (0.01, 0.002)
    ]
    measured = error_at_scale.decay("toy", pd.concat(frames))
    assert measured["toy/SOGram α=0.001/settling steps η=0.01"] == (float("inf"),)
    plan = Plan("error_at_scale", (), (0,), {"learning_rates": [0.01, 0.002], "alphas": [0.001]}, Path())
    frame = pd.concat(frames).assign(reference_error=0.0)
    assert (
        error_at_scale._rows("toy", plan, measured, frame)[0]["settled at step"] == "not yet in 1 of 1 seeds"
    )
