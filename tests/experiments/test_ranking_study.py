"""The study of rankings: the points that a search draws."""

import numpy as np

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
