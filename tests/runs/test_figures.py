"""Figures are made and written for real; what a reader relies on is read back from them."""

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from gramrun.base.errors import InputError
from gramrun.runs import plotting

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


def error_frame(estimators=ESTIMATORS, seeds=1, points=50):
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
    return frame if seeds > 1 else frame.drop(columns="seed")


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
    "trade-off": lambda: plotting.trade_off_figure(error_frame(SEVERAL_ALPHAS)),
    "theory": lambda: plotting.theory_figure(theory_frame(seeds=2, reference_error=0.001)),
    "inner-products": lambda: plotting.inner_products_figure(inner_products_frame()),
    "gravity": lambda: plotting.gravity_figure(gravity_frame(), {"popularity": 0.05}),
    "learning-rates": lambda: plotting.learning_rates_figure(rates_frame()),
}


def labels(panel):
    """Labels of the lines with markers, that is, without baselines."""
    return [line.get_label() for line in panel.get_lines() if line.get_marker() != "None"]


def legend_entries(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_every_axis_is_labelled_and_every_letter_is_legible(make):
    figure = make()
    for panel in figure.axes:
        assert panel.get_xlabel()
        assert panel.get_ylabel()
        texts = [panel.xaxis.label, panel.yaxis.label, panel.title, *panel.get_xticklabels()]
        assert min(text.get_fontsize() for text in texts) >= 7
    assert min(text.get_fontsize() for text in figure.legends[0].get_texts()) >= 7


@pytest.mark.parametrize("make", FIGURES.values(), ids=FIGURES)
def test_panels_keep_a_columns_width_and_the_legend_covers_none(make):
    figure = make()
    figure.draw_without_rendering()
    columns = figure.axes[0].get_gridspec().ncols
    assert figure.get_figwidth() == pytest.approx(3.3 * columns)
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert not any(box.overlaps(panel.get_tightbbox()) for panel in figure.axes)


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".PDF", b"%PDF")]
)
def test_formats_follow_the_suffix_and_equal_data_give_equal_files(tmp_path, suffix, magic):
    paths = [tmp_path / "Größe und Blank" / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        plotting.save(FIGURES["theory"](), path)
    assert paths[0].read_bytes().startswith(magic)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(paths[0].parent.iterdir()) == paths
    with pytest.raises(InputError, match=r"figure\.gif.*\.png, \.svg or \.pdf"):
        plotting.save(FIGURES["map"](), tmp_path / "figure.gif")


def test_map_figure_has_a_panel_for_each_split_and_axis_and_a_line_for_each_method():
    figure = plotting.map_figure(map_frame())
    assert [panel.get_title() for panel in figure.axes[:2]] == ["training set", "validation set"]
    x_labels = [panel.get_xlabel() for panel in figure.axes[::2]]
    assert x_labels == ["training steps", "epochs", "training time (minutes)"]
    assert all(labels(panel) == list(METHODS) for panel in figure.axes)
    assert legend_entries(figure) == list(METHODS)


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
    assert "mean of 3 seeds" in figure.legends[0].get_title().get_text()


def test_steps_that_one_seed_lacks_are_left_out():
    frame = map_frame(methods=["sampling"])
    frame = frame[(frame["seed"] != 2) | (frame["step"] < 5)]
    line = plotting.map_figure(frame).axes[1].get_lines()[0]
    assert list(line.get_xdata()) == [0, 1, 2, 3, 4]


def test_baselines_cross_the_validation_panels_only():
    figure = plotting.map_figure(map_frame(), baselines={"popularity": 0.05, "ALS": 0.15})
    for column, expected in ((0, []), (1, [0.05, 0.15])):
        for panel in figure.axes[column::2]:
            flat = [line.get_ydata()[0] for line in panel.get_lines() if line.get_marker() == "None"]
            assert flat == expected
    assert legend_entries(figure)[-2:] == ["popularity", "ALS"]


@pytest.mark.parametrize(("seconds", "unit"), [(10, "seconds"), (900, "minutes"), (20_000, "hours")])
def test_training_time_is_in_a_unit_that_suits_it(seconds, unit):
    frame = map_frame()
    frame["train_seconds"] *= seconds / frame["train_seconds"].max()
    panel = plotting.map_figure(frame).axes[-1]
    assert panel.get_xlabel() == f"training time ({unit})"
    longest = {"seconds": 1, "minutes": 60, "hours": 3600}[unit] * max(panel.get_lines()[0].get_xdata())
    assert longest == pytest.approx(seconds, rel=0.01)


def test_error_figure_has_a_panel_for_each_batch_size_and_side():
    figure = plotting.gram_error_figure(error_frame())
    titles = [panel.get_title() for panel in figure.axes]
    assert [title.split("B = ")[1] for title in titles] == ["128", "1024"] * 2
    assert ["left" in title for title in titles] == [True, True, False, False]
    for panel in figure.axes:
        assert labels(panel) == list(ESTIMATORS)
        assert panel.get_yscale() == "log"


def test_error_figure_names_alpha_where_an_estimator_has_several():
    figure = plotting.gram_error_figure(error_frame(SEVERAL_ALPHAS))
    assert legend_entries(figure) == [
        "sogram, α = 0.1",
        "sogram, α = 0.001",
        "sogram, α = 0.01",
        "sampling",
    ]


def test_an_exact_start_does_not_flatten_the_other_errors():
    frame = error_frame()
    frame.loc[(frame["estimator"] == "sagram-sag") & (frame["step"] == 1), "error"] = [1e-9, 0.0, 1e-9, 0.0]
    low, _ = plotting.gram_error_figure(frame).axes[0].get_ylim()
    typical = frame.loc[frame["step"] > 1, "error"].min()
    assert typical / 4 < low < typical


def test_trade_off_has_a_line_for_each_alpha_in_order():
    figure = plotting.trade_off_figure(error_frame(SEVERAL_ALPHAS))
    expected = ["α = 0.001", "α = 0.01", "α = 0.1"]
    assert legend_entries(figure) == expected
    assert all(labels(panel) == expected for panel in figure.axes)


def test_theory_is_dashed_in_the_colour_of_what_was_measured():
    frame = theory_frame()
    for panel in plotting.theory_figure(frame).axes:
        lines = panel.get_lines()
        assert labels(panel) == ["sampling", "SOGram α=0.1"]
        measured = {to_hex(line.get_color()): line for line in lines if line.get_marker() != "None"}
        assert all(line.get_linestyle() == "-" for line in measured.values())
        theory = [line for line in lines if line.get_marker() == "None"]
        assert all(line.get_linestyle() == "--" for line in theory)  # matplotlib's word for any dashes
        drawn = {(to_hex(line.get_color()), float(line.get_ydata()[-1])) for line in theory}
        sampling, sogram = measured
        assert drawn == {(sampling, 0.03 / 50), (sogram, 100.0), (sogram, 1500.0)}


def test_a_sampled_references_own_error_is_shaded_and_cuts_nothing_off():
    exact, sampled = (plotting.theory_figure(theory_frame(reference_error=e)) for e in (0.0, 0.0005))
    assert not any(panel.collections for panel in exact.axes)
    for panel in sampled.axes:
        (band,) = panel.collections
        assert band.get_paths()[0].vertices[:, 1].max() == 0.0005
        low, high = panel.get_ylim()
        assert low < 0.0005
        assert high > 1500
    added = set(legend_entries(sampled)) - set(legend_entries(exact))
    assert added == {"the sampled reference's own standard error"}


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


def test_learning_rates_stand_side_by_side_on_one_axis():
    figure = plotting.learning_rates_figure(rates_frame())
    titles = [panel.get_title() for panel in figure.axes]
    assert [title.split("= ")[1] for title in titles] == ["0.01", "0.002"] * 2  # the larger first
    assert len({panel.get_ylim() for panel in figure.axes}) == 1
    large, small = (panel.get_lines()[0].get_ydata() for panel in figure.axes[:2])
    np.testing.assert_allclose(large, 5 * small)
    assert "the sampled reference's own standard error" in legend_entries(figure)
    exact = plotting.learning_rates_figure(rates_frame(reference_error=0.0))
    assert legend_entries(exact) == ["SOGram α=0.1", "SOGram α=0.01"]


def test_no_two_lines_look_alike():
    methods = [f"method {i}" for i in range(32)]
    lines = plotting.map_figure(map_frame(methods, seeds=1, points=2)).axes[0].get_lines()
    # Line2D keeps custom dashes only in `_unscaled_dash_pattern`; its public style is "--" for all of them.
    looks = {(to_hex(line.get_color()), str(line._unscaled_dash_pattern)) for line in lines}
    assert len(looks) == 32


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


def test_a_file_where_a_folder_should_be_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot write .*figure\.png: (Not a directory|File exists)"):
        plotting.save(FIGURES["map"](), tmp_path / "file" / "figure.png")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "figure.svg"
    path.write_text("old")
    figure = FIGURES["map"]()

    def fill_the_disk(file, **options):
        file.write_text("half a fig")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", fill_the_disk)
    with pytest.raises(InputError, match="No space left"):
        plotting.save(figure, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
