"""The study of rankings: the points that a search draws."""

import numpy as np
import pandas as pd

from experiments.studies import ranking


def test_a_search_narrows_in_on_its_best():
    points = ranking.draw("implicit-als", 12)
    point, drawn = next(points), []
    while True:
        drawn.append(point)
        try:
            point = points.send(-abs(np.log(point["regularization"] / 30)))
        except StopIteration:
            break
    assert len(drawn) == 12
    first, last = ([abs(np.log(p["regularization"] / 30)) for p in part] for part in (drawn[:6], drawn[-3:]))
    assert max(last) < max(first)
    assert all(p["sweeps"] == int(p["sweeps"]) for p in drawn)


def test_every_line_of_tried_defaults_is_a_setting_of_fit(tmp_path, monkeypatch, corpus):
    tried = pd.read_csv(ranking.TRIED).head(1).assign(epochs=1)
    tried.to_csv(tmp_path / "tried.csv", index=False)
    monkeypatch.setattr(ranking, "TRIED", tmp_path / "tried.csv")
    monkeypatch.setattr(ranking, "RESULTS", tmp_path)
    monkeypatch.setattr(ranking, "_open", lambda name: corpus)
    ranking.defaults("movielens-1m")
    (row,) = pd.read_csv(tmp_path / "search" / "defaults-movielens-1m.csv").to_dict("records")
    assert row["train.epochs"] == 1 and 0 < row["map@10"] < 1
