"""What tables and verdicts make of finished runs, on numbers worked by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.report.sections import share_form
from experiments.reproduce import rankings
from experiments.reproduce.items import factorial, gramian_error, map_curves, trade_off, training
from experiments.reproduce.jobs import Script
from experiments.reproduce.plans import Plan, load_profile, narrowed, profiles, run_task


def frame(**validation):
    rows = []
    for label, values in validation.items():
        for seed, value in enumerate(values):
            rows.append(
                {
                    "label": label,
                    "seed": seed,
                    "validation": value,
                    "train": 2 * value,
                    "best": value,
                    "best_step": 10,
                    "steps": 20,
                    "seconds": 8.0,
                    "machine": "one",
                    "curve": np.array([[2.0, 5, value / 4], [4.0, 10, value / 2], [8.0, 20, value]]),
                    "popularity": 0.15,
                }
            )
    return pd.DataFrame(rows)


def test_lifts_are_paired_by_seed():
    measured = frame(sampling=[0.1, 0.2], other=[0.11, 0.18])
    assert rankings.ratios(measured, "other") == pytest.approx([1.1, 0.9])
    assert rankings.measured("d", measured)["d/other/training MAP"] == pytest.approx((0.22, 0.36))


def test_an_estimator_with_fewer_seeds_is_compared_over_those_that_it_has(tmp_path):
    fewer = {"estimator_seeds": {"SOGram α=0.1": [0, 1], "SAGram": [0]}}
    grid = {"optimizers": {"Adagrad": ()}, "batches": [1024], "estimators": ["sampling", "SOGram α=0.1"]}
    for item, options, others in ((factorial, grid, 3), (map_curves, {"alphas": [0.1, 0.01]}, 10)):
        plan = Plan("x", ("enwik8",), (0, 1, 2), options | fewer, tmp_path)
        names = [task.output.name for task in item.tasks(plan) if task.command == "train"]
        sogram = [name for name in names if "alpha-0.1-" in name]
        assert [name.rpartition("-")[2] for name in sogram] == ["seed0", "seed1"]
        assert len(names) == 2 + others
        assert plan.seed_count == "3 seeds (SOGram α=0.1: 2, SAGram: 1)"
        for chosen, runs in (([1, 2], 1), ([2, 1], 0)):  # seed 1 is not the first of the latter
            (part,) = narrowed([plan], None, None, chosen)
            assert sum("alpha-0.1-" in task.output.name for task in item.tasks(part)) == runs
    measured = frame(sampling=[0.1, 0.2, 0.3], other=[0.11, 0.18])
    assert rankings.ratios(measured, "other") == pytest.approx([1.1, 0.9])
    assert len(rankings.speed_ups(measured, "other")) == 2


def test_when_a_method_ranks_as_sampling_does_at_its_end():
    """Curves through (2, m/4), (4, m/2), (8, m): sampling comes to its end of .1 after 8 seconds."""
    measured = frame(sampling=[0.1, 0.1, 0.1], other=[0.4, 0.16, 0.05])
    found = rankings.speed_ups(measured, "other")
    assert found == pytest.approx([8 / 2, 8 / 5, 0])  # .1 is (4, .08) + 1/4 of 4 s
    steps = rankings.speed_ups(measured, "other", rankings.STEPS)
    assert steps == pytest.approx([20 / 5, 20 / 12.5, 0])
    assert rankings.speed_ups(measured, "sampling") == pytest.approx([1, 1, 1])
    assert rankings.largest_speed_ups(measured, "other") == pytest.approx([4, 4, 4])


def test_a_level_counts_as_reached_where_a_curve_stays_there_and_sampling_is_timed_like_the_rest():
    measured = frame(sampling=[0.1], other=[0.1])
    # Sampling was at its end of .1 by 4 s for good; the other rose above it at 2 s, fell below, and came back.
    curves = [[[2, 5, 0.05], [4, 10, 0.1], [8, 20, 0.1]], [[2, 5, 0.2], [4, 10, 0.05], [8, 20, 0.15]]]
    measured["curve"] = [np.array(curve) for curve in curves]
    assert rankings.speed_ups(measured, "other") == pytest.approx([4 / 6])
    assert rankings.largest_speed_ups(measured, "other") == pytest.approx([4 / 2])


def test_times_are_compared_on_one_machine_only():
    measured = frame(sampling=[0.1], other=[0.1])
    assert map_curves._speeds(measured) == [{"method": "other", "in time": "1.00", "in steps": "1.00"}]
    measured["machine"] = ["one", "another"]
    assert map_curves._speeds(measured) == [{"method": "other", "in steps": "1.00"}]
    assert not any("speed-up" in name for name in rankings.measured("d", measured))


def test_a_method_is_called_what_its_config_makes_of_it():
    methods = rankings.paper_methods([0.1])
    labels = {name: [m.label for m in rankings.present(name, methods)] for name in ("enwik8", "wikipedia-fr")}
    assert labels["enwik8"] == ["sampling", "SOGram α=0.1", "SAGram β=1, per pair", "exact Gramian"]
    assert labels["wikipedia-fr"][:2] == labels["enwik8"][:2]
    assert labels["wikipedia-fr"][2].startswith("SAGram β=1, per item")


def errors_of(curves, steps=10):
    """One row a step for each α's curve, two seeds of the same."""
    rows = [
        ("SOGram", alpha, "left", 128, step, seed, curve(step))
        for alpha, curve in curves.items()
        for step in range(1, steps + 1)
        for seed in (0, 1)
    ]
    columns = ["estimator", "alpha", "side", "batch_size", "step", "seed", "error"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(label=table["estimator"] + table["alpha"].map(" α={:g}".format))


def test_where_two_learning_rates_change_places():
    rows = trade_off.crossings(errors_of({0.1: lambda t: 0.5, 0.01: lambda t: 1 / t}))  # 1/t < 1/2 from t = 3
    assert rows["crosses at step"].tolist() == ["3"]
    rows = trade_off.crossings(errors_of({0.1: lambda t: 0.01, 0.01: lambda t: 1 / t}))
    assert rows["crosses at step"].tolist() == ["never"]
    rows = trade_off.crossings(errors_of({0.1: lambda t: 2, 0.01: lambda t: 1 / t}))
    assert rows["crosses at step"].tolist() == ["from the start"]


def test_late_and_early_errors():
    """Of 10 steps, the last fifth is 9 and 10, and the first tenth 1."""
    found = gramian_error.measurements("d", errors_of({0.1: lambda t: float(t)}), pairs=640)
    assert found == {
        "d/trajectory steps": (10,),
        "d/trajectory passes B=128": (2,),
        "d/SOGram α=0.1/left error B=128": (9.5, 9.5),
        "d/SOGram α=0.1/left early error B=128": (1, 1),
    }


@pytest.mark.parametrize("profile", profiles())
def test_every_run_of_every_profile_is_a_valid_config_of_its_own(profile, tmp_path, monkeypatch):
    """By its name: two runs of one name would overwrite one another."""
    import importlib

    named = {}
    for plan in load_profile(profile, tmp_path):
        item = importlib.import_module(f"experiments.reproduce.items.{plan.item}")
        for task in item.tasks(plan):
            config = task.arguments if isinstance(task, Script) else task.wanted()
            kind = task.module if isinstance(task, Script) else task.command
            assert named.setdefault(task.output, (kind, config)) == (kind, config)
        for option in ("estimator_settings", "estimator_seeds"):
            for name in plan.options.get(option, ()):  # what changes no run is misspelt
                kept = {key: value for key, value in plan.options[option].items() if key != name}
                assert item.tasks(replace(plan, options={**plan.options, option: kept})) != item.tasks(plan)
    # Runs of an earlier version logged no errors, and are repeated under a name of their own.
    once = [made for output, made in named.items() if "-gramian-samples-" not in output.name]
    assert len(set(once)) == len(once)


def test_the_rise_in_the_last_tenth():
    """From (10, m/2) to (20, m), a tenth of the steps before the end it is .9 m: a rise of 1/9."""
    assert rankings.late_rise(frame(ahead=[0.11, 0.22, 0.111]), "ahead") == pytest.approx(1 / 9)


def test_a_runs_folder_is_named_by_its_settings_however_long():
    sizes = [f"gram_error.estimators={list(range(last))}" for last in (500, 501)]
    one, other = (run_task("gram-error", "enwik8", "gram-error", size, seed=0).output.name for size in sizes)
    assert one != other and max(len(one), len(other)) < 150 and one.endswith("-seed0")


def ranked(values):
    """`measure`'s frame of methods and their validation MAP@10 by seed."""
    return pd.DataFrame(
        {"label": label, "seed": seed, "validation": x, "train": 2 * x, "rank_left": 30.0, "rank_right": 31.0,
         "seconds": 60.0, "popularity": 0.03, "machine": "one", "curve": np.array([[4.0, 10, x / 2], [8.0, 20, x]])}
        for label, maps in values.items()
        for seed, x in enumerate(maps)
    )  # fmt: skip


def test_a_row_of_the_factorial_experiment_is_a_lift_over_sampling_of_the_same_optimizer_and_batch(
    monkeypatch,
):
    options = {
        "optimizers": {"Adam": [], "SGD": []},
        "batches": [64, 1024],
        "estimators": ["sampling", "exact Gramian"],
    }
    plan = Plan("factorial", ("enwik8",), (0, 1, 2), options, Path())
    values = {
        factorial.label(optimizer, batch, name): [scale * x for x in (1.0, 1.1, 0.9)]
        for (optimizer, batch, name), scale in {
            ("Adam", 64, "sampling"): 0.05, ("Adam", 64, "exact Gramian"): 0.06,
            ("SGD", 64, "sampling"): 0.04, ("SGD", 64, "exact Gramian"): 0.02,
        }.items()
    }  # fmt: skip
    frame = ranked(values).assign(constant=float("nan"), error_left=float("nan"), error_right=0.25)
    frame.loc[frame["label"] == factorial.label("Adam", 64, "exact Gramian"), "error_left"] = [0.1, 0.2, 0.3]
    frame.loc[frame["label"] == factorial.label("Adam", 64, "sampling"), "constant"] = 0.02
    frame.loc[frame["label"] == factorial.label("Adam", 64, "exact Gramian"), "constant"] = 0.03
    monkeypatch.setattr(rankings, "resampled_lift", lambda *arguments: "[by left items]")
    rows = [
        row
        for name in ("Adam", "SGD")
        for row in factorial._rows(plan, "enwik8", frame, name, 64, optimum=(0.066,) * 3)
    ]
    assert rows[1] == {
        "optimizer": "Adam", "B": "64", "estimator": "exact Gramian", "MAP@10": "0.0600 ± 0.0060",
        "lift [95 %]": "+20.0% [+20.0%, +20.0%]", "by left items": "[by left items]",
        "at a constant η": "+50.0% [+50.0%, +50.0%]", "error of Ĝ": "0.200 · 0.250", "effective rank": "30 · 31",
        "rise in the last tenth": "+11.1% (no plateau)", "of exact ALS": "91% [68%, 113%]", "trained": "yes",
    }  # fmt: skip
    compared = ("lift [95 %]", "by left items", "at a constant η")
    assert [rows[0][name] for name in (*compared, "error of Ĝ")] == ["", "", "", ""]
    assert [rows[3][name] for name in compared] == ["-50.0% [-50.0%, -50.0%]", "[by left items]", ""]
    assert [row["trained"] for row in rows] == ["yes", "yes", "NOT TRAINED", "below popularity"]


def test_towers_are_judged_by_the_nearest_gramian():
    """The best of several arms would pass by luck."""
    lucky = frame(sampling=[0.88, 0.96, 1.04], SOGram=[2.0, 2.0, 2.0]).assign(popularity=0.01)
    share = rankings.measured("d", lucky, optimum=(1 / 0.9,))["d/towers/share of the required MAP"]
    assert share == pytest.approx([0.88, 0.96, 1.04])
    labels = ["sampling", "SOGram α=0.1", "SAGram β=1, per pair"]
    assert rankings.judged(labels) == "sampling"
    assert rankings.judged([*labels, "SAGram β=1, per item, bfloat16"]) == "SAGram β=1, per item, bfloat16"
    assert rankings.judged([*labels, "SAGram per item", "exact Gramian"]) == "exact Gramian"


def test_exact_als_has_the_k_of_the_towers_that_it_measures(tmp_path):
    plan = Plan("x", ("miwiki",), (0,), {"settings": ["model.embedding_dim=32"]}, tmp_path)
    (solved,) = rankings.optimum_tasks(plan, "miwiki")
    assert solved.wanted().baseline.embedding_dim == 32


@pytest.mark.parametrize(
    ("share", "text"), [(0.896, "89.6%"), (0.8996, "89.96%"), (0.9, "90%"), (0.904, "90%")]
)
def test_a_share_is_not_rounded_up_to_the_limit_that_it_misses(share, text):
    assert f"{share:{share_form(share, 0.9)}}" == text


def test_the_optimizers_table_shows_chosen_rates_and_the_share_of_exact_als():
    rates = {"train.learning_rate": [0.1, 0.3, 0.01], "train.dense_learning_rate": [1e-3, 3e-3, 1e-4]}
    tried = pd.DataFrame({"method": ["SGD", "SGD", "Adam"], **rates, "tuning": [0.01, 0.02, 0.05]})
    frame = ranked({"SGD": [0.02, 0.022], "Adam": [0.06, 0.064], "exact ALS": [0.08, 0.08]})
    table = training.final_table(tried, frame, "exact ALS").set_index("optimizer")
    assert table.loc["SGD", ["η", "dense η"]].tolist() == ["0.3", "0.003"]
    assert table["of exact ALS"].tolist() == ["26%", "78%", "100%", ""]
    assert table.loc["Adam", "effective rank"] == "30 · 31"
    assert table.loc["popularity", "validation MAP@10"] == "0.0300"
