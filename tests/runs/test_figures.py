"""Figures are made and written for real; means, bands and theory are read back from them."""

import itertools

import numpy as np
import pandas as pd
import pytest

from gramrun.base.errors import InputError
from gramrun.runs import plotting
from gramrun.runs.panels import line_styles

METHODS = ("sampling", "SOGram α = 0.001", "SOGram α = 0.01", "SOGram α = 0.1")
ESTIMATORS = {"sampling": np.nan, "sagram-sag": np.nan, "sogram": 0.01, "sogram-debiased": 0.01}


def map_frame(methods=METHODS, seeds=3, points=12):
    generator = np.random.default_rng(0)
    cells = itertools.product(methods, range(seeds), range(points), ("train", "validation"))
    frame = pd.DataFrame(cells, columns=["method", "seed", "step", "split"])
    frame["train_seconds"] = frame["step"] * (600.0 + frame["seed"])
    frame["epoch"] = frame["step"] / 4
    frame["map@10"] = 0.2 * frame["step"] / points + generator.uniform(0, 0.02, len(frame))
    return frame


def error_frame(estimators=ESTIMATORS, seeds=1, points=20):
    generator = np.random.default_rng(0)
    cells = itertools.product(
        estimators.items(), range(seeds), range(1, points + 1), (1024, 128), ("left", "right")
    )
    frame = pd.DataFrame(
        [(name.split("/")[0], alpha, *rest) for (name, alpha), *rest in cells],
        columns=["estimator", "alpha", "seed", "step", "batch_size", "side"],
    )
    frame["epoch"], frame["seconds"] = frame["step"] / 10, frame["step"] * 0.1
    frame["error"] = np.exp(-frame["step"] / 20) + generator.uniform(0.01, 0.05, len(frame))
    return frame


def theory_frame(seeds=1, reference_error=0.0):
    """sampling has an expectation, SOGram two bounds; with or without a sampled reference."""
    frame = error_frame({"sampling": np.nan, "SOGram α=0.1": 0.1}, seeds).rename(
        columns={"estimator": "label"}
    )
    is_sogram = frame["label"] != "sampling"
    frame["expected"] = (0.03 / frame["step"]).mask(is_sogram)
    frame["stepwise"], frame["bound"] = ((c * frame["step"]).where(is_sogram) for c in (2.0, 30.0))
    return frame.assign(reference_error=reference_error)


def inner_products_frame(methods=("λ = 0.01", "λ = 10"), seeds=2, points=5):
    """Quantiles that are offsets from a median that is the step for random pairs, ten more for observed ones."""
    cells = itertools.product(methods, range(seeds), range(1, points + 1), ("train", "validation", "random"))
    frame = pd.DataFrame(cells, columns=["method", "seed", "step", "pairs"])
    frame["epoch"] = frame["step"] / 2
    median = frame["step"] + 10 * (frame["pairs"] != "random") + frame["seed"]
    offsets = {"q0.01": -3, "q0.05": -2, "q0.25": -1, "q0.5": 0, "q0.75": 1, "q0.95": 2, "q0.99": 3}
    return frame.assign(**{name: median + offset for name, offset in offsets.items()})


def gravity_frame(gravities=(0.01, 1.0, 10.0), seeds=2):
    frame = map_frame([f"{g:g}" for g in gravities], seeds, points=6)
    frame = frame[frame["split"] == "validation"]
    return frame.assign(gravity=frame["method"].astype(float), method="SOGram α=0.01")


def rates_frame(reference_error=0.001):
    frame = error_frame({"SOGram α=0.1": 0.1, "SOGram α=0.01": 0.01}, seeds=2)
    frame = frame[frame["batch_size"] == 1024].rename(columns={"estimator": "label"})
    frames = [frame.assign(learning_rate=rate, error=frame["error"] * rate) for rate in (0.002, 0.01)]
    return pd.concat(frames).assign(reference_error=reference_error)


SEVERAL_ALPHAS = {"sogram/a": 0.1, "sogram/b": 0.001, "sogram/c": 0.01, "sampling": np.nan}

FIGURES = {
    "map": lambda: plotting.map_figure(map_frame(), baselines={"popularity": 0.05}),
    "gram-error": lambda: plotting.gram_error_figure(error_frame(seeds=2)),
    "trade-off": lambda: plotting.trade_off_figure(error_frame(SEVERAL_ALPHAS), "sogram"),
    "theory": lambda: plotting.theory_figure(theory_frame(seeds=2, reference_error=0.001)),
    "inner-products": lambda: plotting.inner_products_figure(inner_products_frame()),
    "gravity": lambda: plotting.gravity_figure(gravity_frame(), {"popularity": 0.05}),
    "learning-rates": lambda: plotting.learning_rates_figure(rates_frame()),
}


def labels(panel):
    """Labels of the lines with markers, that is, without baselines."""
    return [line.get_label() for line in panel.get_lines() if line.get_marker() != "None"]


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_every_axis_is_labelled_and_the_legend_covers_no_panel(make):
    figure = make()
    assert all(panel.get_xlabel() and panel.get_ylabel() for panel in figure.axes)
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert not any(box.overlaps(panel.get_tightbbox()) for panel in figure.axes)


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_formats_follow_the_suffix_and_equal_data_give_equal_files(tmp_path, suffix, magic):
    paths = [tmp_path / "Größe und Blank" / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        plotting.save(FIGURES["inner-products"](), path)
    assert paths[0].read_bytes().startswith(magic)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(paths[0].parent.iterdir()) == paths
    with pytest.raises(InputError, match=r"figure\.gif.*\.png, \.svg or \.pdf"):
        plotting.save(FIGURES["map"](), tmp_path / "figure.gif")


def test_lines_are_means_and_bands_span_the_seeds():
    frame = map_frame(methods=["sampling"])
    figure = plotting.map_figure(frame)
    panel = figure.axes[1]
    values = frame[frame["split"] == "validation"].pivot(index="step", columns="seed", values="map@10")
    np.testing.assert_allclose(panel.get_lines()[0].get_ydata(), values.mean(axis=1))
    (band,) = panel.collections
    outline = pd.DataFrame(band.get_paths()[0].vertices, columns=["x", "y"]).groupby("x")["y"]
    np.testing.assert_allclose(outline.min(), values.min(axis=1))
    np.testing.assert_allclose(outline.max(), values.max(axis=1))


def test_steps_that_one_seed_lacks_are_left_out():
    frame = map_frame(methods=["sampling"])
    frame = frame[(frame["seed"] != 2) | (frame["step"] < 5)]
    line = plotting.map_figure(frame).axes[1].get_lines()[0]
    assert list(4 * line.get_xdata()) == [0, 1, 2, 3, 4]


def test_bands_hold_the_quantiles_and_lines_are_medians():
    for panel, offset in zip(
        plotting.inner_products_figure(inner_products_frame()).axes, (10, 0), strict=False
    ):
        steps = np.arange(1, 6)
        median = steps + offset + 0.5  # the mean over seeds 0 and 1
        for band, width in zip(panel.collections, (3, 2, 1), strict=True):
            outline = pd.DataFrame(band.get_paths()[0].vertices, columns=["x", "y"]).groupby("x")["y"]
            np.testing.assert_allclose(outline.max(), median + width)
            np.testing.assert_allclose(outline.min(), median - width)
        np.testing.assert_allclose(panel.get_lines()[0].get_ydata(), median)
        np.testing.assert_allclose(panel.get_lines()[0].get_xdata(), steps / 2)


def test_gravity_is_drawn_over_time_and_at_the_end():
    frame = gravity_frame()
    over_time, at_end = plotting.gravity_figure(frame, {"popularity": 0.05}).axes
    assert labels(over_time) == ["λ = 0.01", "λ = 1", "λ = 10"]
    assert (at_end.get_xscale(), at_end.get_yscale()) == ("log", "log")
    final = frame[frame["step"] == 5].groupby("gravity")["map@10"]
    np.testing.assert_allclose(at_end.get_lines()[0].get_xdata(), [0.01, 1, 10])
    np.testing.assert_allclose(at_end.get_lines()[0].get_ydata(), final.mean())
    assert sorted(at_end.get_lines()[1].get_ydata()) == pytest.approx(
        sorted(frame[frame["step"] == 5]["map@10"])
    )
    for panel in (over_time, at_end):
        assert panel.get_lines()[-1].get_ydata()[0] == 0.05


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        (lambda: plotting.map_figure(map_frame().iloc[:0]), "the data has no rows"),
        (lambda: plotting.map_figure(map_frame().drop(columns=["epoch", "map@10"])), "column epoch, map@10"),
        (lambda: plotting.gram_error_figure(error_frame().assign(side="top")), "no row has the side"),
        (lambda: plotting.trade_off_figure(error_frame(), "sampling"), 'estimator "sampling"'),
        (lambda: plotting.gravity_figure(gravity_frame().assign(gravity=0.0)), "no run has a λ above 0"),
    ],
)
def test_data_that_cannot_be_plotted_are_named(plot, message):
    with pytest.raises(InputError, match=message):
        plot()


def test_an_estimator_has_one_style_in_every_figure():
    several = line_styles(["SAGram β=1, per item", "SOGram α=0.01", "tuned", "sampling", "α = 0.001"])
    assert len({style["color"] for style in several.values()}) == len(several)
    assert line_styles(["α = 0.01", "α = 0.001"]) == {
        "α = 0.01": several["SOGram α=0.01"],
        "α = 0.001": several["α = 0.001"],
    }
