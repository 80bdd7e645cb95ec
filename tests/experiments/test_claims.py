"""Claims get the verdicts that they must, from made measurements and from the published ones."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments.report import summary
from experiments.report.claim import Claim, Limits, Need
from experiments.report.claims import CLAIMS
from experiments.report.keys import corpus_of
from experiments.report.sections import Section, gather, joined
from experiments.report.verdicts import Outcome, judge
from gramrun.base.files import read_json

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
WHOLE = {
    "id": "a-claim",
    "says": "One thing is smaller than another.",
    "words": "one error ÷ the other",
    "source": "Section 4",
    "item": "gramian_error",
    "each": {"dataset": ("toy",)},
    "left": "{dataset}/a/error",
    "right": "{dataset}/b/error",
    "limits": Limits(high=1),
}
PASS, FAIL, OPEN = Outcome.PASS, Outcome.FAIL, Outcome.NOT_DECIDED
ABOVE_1 = {"limits": Limits(low=1)}
VALUE = {"measure": "value", "right": None, "limits": Limits(4, 6)}
COUNT = {**VALUE, "measure": "count", "limits": Limits(84e3, 86e3)}
CONTRAST = {
    "measure": "contrast",
    "left": ("{dataset}/a/v", "{dataset}/b/v"),
    "right": ("{dataset}/a/t", "{dataset}/b/t"),
    **ABOVE_1,
}
PEAK = {"measure": "interior peak", "left": "{dataset}/a λ=*", "right": None, **ABOVE_1}


def made(**changes):
    return Claim(**{**WHOLE, **changes})


def test_claims_have_names_of_their_own_and_limits_around_something():
    texts = {(claim.id, claim.says, claim.left, claim.right) for claim in CLAIMS}
    assert len({claim.id for claim in CLAIMS}) == len(texts)  # one id: the same claim on other corpora
    for claim in CLAIMS:
        assert claim.limits.low < claim.limits.high
        for case in claim.cases():
            assert "{" not in "".join(name for side in claim.names(case) for name in side)
            assert all(need.least(case) > 0 for need in claim.needs)


def test_the_published_verdicts_follow_from_their_own_numbers():
    rows = read_json(REFERENCE / "claims.json")["verdicts"]
    measured = {name: tuple(map(float, v)) for row in rows for name, v in row["measured"].items()}
    again = judge(CLAIMS, measured)
    assert [(row["claim"], row["dataset"], row["case"], row["outcome"]) for row in rows] == [
        (v.claim.id, v.dataset, v.case, v.outcome.value) for v in again
    ]
    for row, verdict in zip(rows, again, strict=True):
        for name in ("estimate", "low", "high"):
            assert getattr(verdict, name) == pytest.approx(float(row[name]), rel=1e-9, nan_ok=True)


def verdict(claim, **measured):
    """The one verdict on a claim, from measurements of the corpus "toy"."""
    (only,) = judge([claim], {f"toy/{name.replace('_', '/')}": v for name, v in measured.items()})
    return only


@pytest.mark.parametrize(
    ("changes", "measured", "outcome"),
    [
        ({}, {"a_error": (1.0, 1.1, 0.9), "b_error": (2.0, 2.1, 1.9)}, PASS),
        ({}, {"a_error": (2.0, 2.1, 1.9), "b_error": (1.0, 1.1, 0.9)}, FAIL),
        ({}, {"a_error": (1.0, 1.2, 0.7), "b_error": (1.1, 1.0, 1.0)}, OPEN),
        (ABOVE_1, {"a_error": (2.0, 2.1), "b_error": (1.0, 1.02)}, PASS),
        ({"measure": "difference", "limits": Limits(high=0)}, {"a_error": (1.0, 1.1), "b_error": (2.0, 2.1)}, PASS),
        ({"measure": "difference", "limits": Limits(high=0)}, {"a_error": (3.0, 3.1), "b_error": (2.0, 2.1)}, FAIL),
        ({"measure": "difference", "limits": Limits(high=0)}, {"a_error": (1.0, 3.1), "b_error": (2.0, 2.1)}, OPEN),
        (VALUE, {"a_error": (4.9, 5.0, 5.1)}, PASS),
        (VALUE, {"a_error": (6.9, 7.0, 7.1)}, FAIL),
        (VALUE, {"a_error": (2.9, 3.0, 3.1)}, FAIL),
        (VALUE, {"a_error": (5.8, 6.0, 6.1)}, OPEN),
        (VALUE, {"a_error": (0.0, 5.0, 10.0)}, OPEN),
        (COUNT, {"a_error": (85e3,)}, PASS),
        (COUNT, {"a_error": (8e3,)}, FAIL),
        (PEAK, {"a λ=1": (1.0, 1.1), "a λ=10": (2.0, 2.1), "a λ=100": (1.5, 1.57)}, PASS),
        (PEAK, {"a λ=1": (1.0, 1.1), "a λ=10": (2.0, 2.1), "a λ=100": (2.5, 2.6)}, FAIL),
        (PEAK, {"a λ=1": (1.0, 1.1), "a λ=10": (2.0, 2.1), "a λ=100": (1.5, 2.9)}, OPEN),
        ({}, {"a_error": (1.0, 1.0, 1.0), "b_error": (1.0, 1.0, 1.0)}, OPEN),  # a tie is not below
        (ABOVE_1, {"a_error": (1.0, 1.0), "b_error": (1.0, 1.0)}, OPEN),
        (COUNT, {"a_error": (84e3,)}, PASS),
        (CONTRAST, {"a_v": (1.2, 1.21), "b_v": (1.0, 1.0), "a_t": (1.0, 1.01), "b_t": (1.0, 1.0)}, PASS),
        (CONTRAST, {"a_v": (0.9, 0.91), "b_v": (1.0, 1.0), "a_t": (0.5, 0.5), "b_t": (1.0, 1.0)}, FAIL),  # worse in both
        (CONTRAST, {"a_v": (1.2, 1.21), "b_v": (1.0, 1.0), "a_t": (2.0, 2.1), "b_t": (1.0, 1.0)}, FAIL),  # more in training
        (CONTRAST, {"a_v": (0.8, 1.3), "b_v": (1.0, 1.0), "a_t": (0.2, 0.21), "b_t": (1.0, 1.0)}, OPEN),
    ],
)  # fmt: skip
def test_made_measurements_get_the_verdict_that_they_must(changes, measured, outcome):
    found = verdict(made(**changes), **measured)
    assert found.outcome == outcome, found.reason
    assert found.low <= found.estimate <= found.high


def test_the_interval_is_student_s_over_paired_seeds():
    left, right = (1.0, 2.0, 3.5, 4.0), (0.9, 2.2, 3.0, 4.4)
    logs = np.log(np.divide(left, right))
    for measure, pairs, back in (("ratio", logs, np.exp), ("difference", np.subtract(left, right), np.array)):
        found = verdict(made(measure=measure), a_error=left, b_error=right)
        wanted = stats.ttest_1samp(pairs, 0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx(tuple(back([wanted.low, wanted.high])))
        assert found.estimate == pytest.approx(back(np.mean(pairs)))
    # Pairing matters: the same numbers in another order say less.
    noisy = {"a_error": (1.0, 2.0, 4.0), "b_error": (1.1, 2.2, 4.4)}
    assert verdict(made(), **noisy).outcome == PASS
    assert verdict(made(), a_error=(4.0, 1.0, 2.0), b_error=(1.1, 2.2, 4.4)).outcome == OPEN


def test_ranking_of_untrained_towers_gets_no_verdict_and_a_lift_stands_beside_its_ceiling():
    ceiling = {name: (f"{{dataset}}/{name}", "{dataset}/b/error") for name in ("absent", "near", "far")}
    claim = made(trained=("{dataset}/share",), ceiling=ceiling, **ABOVE_1)
    measured = {"a_error": (2.0, 2.1), "b_error": (1.0, 1.02), "near": (3.0, 3.06), "far": (2.0, 2.04)}
    untrained = verdict(claim, **measured, share=(0.8, 0.81))
    assert (untrained.outcome, untrained.tested) == (Outcome.NOT_TRAINED, False)
    assert "80%" in untrained.reason
    trained = verdict(claim, **measured, share=(0.9, 1.1))
    assert trained.outcome == PASS
    assert trained.reason.endswith("; near has 3 [3, 3]")
    assert verdict(claim, **measured).outcome == PASS, "where no exact ALS is known, popularity alone decides"


def test_a_side_with_fewer_seeds_is_compared_over_those_that_it_has():
    found = verdict(made(), a_error=(1.0, 1.1), b_error=(2.0, 2.1, 0.1))
    assert found.outcome is PASS and found.seeds == 2
    assert found.estimate == verdict(made(), a_error=(1.0, 1.1), b_error=(2.0, 2.1)).estimate
    two = made(left=("{dataset}/a/v", "{dataset}/b/v"), right="{dataset}/c/v")
    found = verdict(two, a_v=(1.0, 1.1), b_v=(2.0, 2.1, 9.0), c_v=(1.0, 1.0, 1.0, 9.0))
    assert found.estimate == pytest.approx(math.sqrt(1 / 2 * 1.1 / 2.1))


def test_more_than_claimed_is_no_failure():
    """SOGram's error at 128 is claimed to be like sampling's at 1,024: within a factor of 2."""
    for factor, wanted in ((0.3, Outcome.BETTER), (1.0, PASS), (3.0, FAIL)):
        errors = {128: (factor, 1.01 * factor), 1024: (1.0, 1.0)}
        measured = {
            "enwik8/SOGram α=0.01/left error B=128": errors[128],
            "enwik8/sampling/left error B=1024": errors[1024],
            "enwik8/trajectory steps": (3000.0,),
        }
        by_id = told(judge(CLAIMS, measured))
        assert by_id["sogram-128-like-sampling-1024"][0] == {wanted: 1}


def test_a_quotient_of_quotients():
    claim = made(left=("{dataset}/a", "{dataset}/b"), right=("small/a", "small/b"), **ABOVE_1)
    measured = {"toy/a": (6.0, 6.0), "toy/b": (2.0, 2.1), "small/a": (2.0, 2.2), "small/b": (1.0, 1.0)}
    (found,) = judge([claim], measured)
    assert found.estimate == pytest.approx(stats.gmean([3 / 2.0, (6 / 2.1) / 2.2]))
    assert set(found.measured) == set(measured)


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        ({}, "not measured by this profile: toy/a/error, toy/b/error"),
        ({"a_error": (1.0, 2.0)}, "not measured by this profile: toy/b/error"),
        ({"a_error": (1.0,), "b_error": (2.0,)}, "one seed gives no interval"),
        ({"a_error": (1.0, math.nan), "b_error": (2.0, 2.0)}, "gave no number"),
        ({"a_error": (1.0, 1.0), "b_error": (2.0, 0.0)}, "gave no number"),
    ],
)
def test_what_cannot_be_judged_is_not_tested_and_says_why(measured, reason):
    found = verdict(made(), **measured)
    assert found.outcome == Outcome.NOT_TESTED
    assert reason in found.reason
    assert math.isnan(found.low)


def test_a_claim_that_cannot_be_tested_here_gives_its_own_reason_until_it_is_measured():
    claim = made(untested="needs a dump")
    assert verdict(claim).reason == "needs a dump"
    assert verdict(claim, a_error=(1.0, 1.1), b_error=(2.0, 2.0)).outcome == PASS


def test_a_seed_that_never_got_there_counts_as_infinite():
    claim = made(limits=Limits(high=1 / 6))
    inf = math.inf
    ones, six = {"b_error": (1.0,) * 6}, (0.9, 1.0, 1.1, 1.2, 1.3)
    assert verdict(claim, a_error=(inf,) * 6, **ones).outcome == FAIL
    assert verdict(claim, a_error=(*six, inf), **ones).outcome == FAIL  # no seed was fast enough
    assert verdict(claim, a_error=(0.1, *six[1:], inf), **ones).outcome == OPEN
    # The range of fewer seeds has the median with less than 95 %.
    few = verdict(claim, a_error=(*six[:4], inf), b_error=(1.0,) * 5)
    assert few.outcome == Outcome.NOT_TESTED and "5 seeds are too few" in few.reason


def test_seeds_of_two_corpora_do_not_pair():
    """Numbers that pair perfectly, and say little when they do not; by scipy's own test on logarithms."""
    left, right = (1.0, 2.0, 4.0), (1.1, 2.2, 4.4, 3.0)
    claim = made(measure="ratio between corpora")
    found = verdict(claim, a_error=left, b_error=right)
    wanted = stats.ttest_ind(np.log(left), np.log(right), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(wanted.low), np.exp(wanted.high)))
    assert (found.outcome, found.seeds) == (OPEN, 3)
    assert verdict(made(), a_error=left, b_error=right[:3]).outcome == PASS  # paired they would decide
    assert "not above zero" in verdict(claim, a_error=(0.0, 1.0), b_error=(1.0, 2.0)).reason
    assert "one seed" in verdict(claim, a_error=(1.0,), b_error=(0.1, 0.2)).reason


@pytest.mark.parametrize(
    ("larger", "smaller", "outcome"),
    [
        ((1.20, 1.22, 1.21), (1.10, 1.11, 1.09), PASS),  # a gain that grows
        ((1.10, 1.11, 1.09), (1.20, 1.22, 1.21), FAIL),  # one that shrinks
        ((0.90, 0.91, 0.89), (0.80, 0.81, 0.79), FAIL),  # a loss that shrinks
        ((1.00, 1.02, 0.98), (0.80, 0.81, 0.79), OPEN),  # a loss, and perhaps a gain
    ],
)
def test_a_gain_grows_where_there_is_one(larger, smaller, outcome):
    claim = made(measure="ratio between corpora", limits=Limits(low=1), gains=True)
    found = verdict(claim, a_error=larger, b_error=smaller)
    assert found.outcome == outcome
    assert found.estimate == pytest.approx(stats.gmean(larger) / stats.gmean(smaller))
    assert f"of the lesser {claim.limits}" in found.reason


@pytest.mark.parametrize(
    ("need", "measured", "reason"),
    [
        ({"name": "{dataset}/trajectory steps", "at_least": 3000}, (600.0,), "needs trajectory steps of at least 3,000, has 600"),
        ({"name": "{dataset}/trajectory steps", "at_least": "3/{α}"}, (299.0,), "needs trajectory steps of at least 300, has 299"),
        ({"name": "{dataset}/scale trajectory steps", "at_least": "3/{α}"}, (20.0,), "needs scale trajectory steps of at least 300, has 20"),
        ({"name": "{dataset}/trajectory passes B={B}", "at_least": 1}, (2.0, 0.5), "needs trajectory passes B=128 of at least 1, has 0.5"),
        ({"name": "{dataset}/SOGram α={α}/steps", "at_least": "3/{α}"}, (75.0,), "needs steps of at least 300, has 75"),
        ({"name": "{dataset}/a/largest speed-up", "at_least": 25}, (10.0,), "needs largest speed-up of at least 25, has 10"),
    ],
)  # fmt: skip
def test_runs_that_are_too_short_for_a_claim_do_not_fail_it(need, measured, reason):
    each = {"dataset": ("toy",), "α": ("0.01",), "B": ("128",)}
    claim = made(each=each, needs=(Need(**need),))
    name = need["name"].format(dataset="toy", α="0.01", B="128")
    bad = {"toy/a/error": (2.0, 2.1), "toy/b/error": (1.0, 1.0)}
    (short,) = judge([claim], bad | {name: measured})
    assert (short.outcome, short.reason) == (Outcome.NOT_TESTED, reason)
    (enough,) = judge([claim], bad | {name: (1e9,)})
    assert (enough.outcome, enough.seeds) == (FAIL, 2)
    (unknown,) = judge([claim], bad)
    assert unknown.reason == f"not known whether its runs went far enough: no {name}"


def test_sections_may_share_a_measurement_but_not_disagree():
    one = Section("one", "One", "", "", measured={"toy/a": (1.0, math.nan)})
    same = Section("two", "Two", "", "", measured={"toy/a": (1.0, math.nan), "toy/b": (3,)})
    assert set(gather([one, same])) == {"toy/a", "toy/b"}
    with pytest.raises(ValueError, match="toy/a has other numbers"):
        gather([one, Section("three", "Three", "", "", measured={"toy/a": (1.0, 2.0)})])
    with pytest.raises(ValueError, match="toy/a has other numbers"):
        joined(one, Section("one", "One", "", "", measured={"toy/a": (1.0, 2.0)}))


def turned(factor):
    """Made measurements for all claims on errors: SOGram's are `factor` times sampling's."""
    noise = np.array([0.99, 1.0, 1.01])
    return {
        f"enwik8/{method}/left error B={size}": tuple(size_factor * scale * noise)
        for method, scale in (("sampling", 1.0), ("SOGram α=0.01", factor))
        for size, size_factor in ((128, 0.3), (1024, 0.1))
    } | {"enwik8/trajectory steps": (3000.0,)}


def test_when_the_numbers_turn_the_words_turn():
    good, bad = (judge(CLAIMS, turned(factor)) for factor in (0.3, 3.0))
    assert summary.summary(good) != summary.summary(bad)
    by_id = told(bad)
    assert by_id["sogram-nearer-than-sampling"] == ({FAIL: 2}, "fails on enwik8*")
    assert by_id["error-falls-with-batch"][0] == {PASS: 2}
    names = {claim.id for group in summary.untested(bad) for claim in group.claims}
    assert names | set(by_id) == {claim.id for claim in CLAIMS}
    assert not names & set(by_id)


def test_a_part_of_a_profile_is_of_its_corpus():
    assert summary.marked("simple-scale-small-alpha").endswith("†")
    assert corpus_of("miwiki-split1-adagrad") == "miwiki-adagrad"


def test_a_claim_that_towers_leave_untested_says_so():
    untrained = {
        "wikipedia-simple/sampling/validation MAP": (0.01, 0.011),
        "wikipedia-simple/towers/share of the required MAP": (0.5, 0.51),
    }
    (claim,) = (claim for claim in CLAIMS if claim.id == "table-2-simple-sampling")
    (group,) = summary.untested(judge([claim], untrained))
    assert "reach 50% of what is required" in group.reason


def test_a_corpus_on_which_a_claim_holds_and_fails_stands_under_both():
    measured = turned(0.3) | {"enwik8/SOGram α=0.01/left error B=128": (2.0, 2.1, 2.2)}
    counts, where = told(judge(CLAIMS, measured))["sogram-nearer-than-sampling"]
    assert counts == {PASS: 1, FAIL: 1}
    assert where == "holds on enwik8* (B = 1024, α = 0.01, left); fails on enwik8* (B = 128, α = 0.01, left)"


def test_claims_on_the_same_numbers_are_one_row():
    measured = {
        f"enwik8/{method}/{split} MAP": tuple(scale * np.array([0.99, 1.0, 1.02]))
        for method, scale in (("sampling", 0.06), ("SOGram α=0.01", 0.03), ("exact Gramian", 0.063))
        for split in ("validation", "training")
    } | {"enwik8/SOGram α=0.01/steps": (4532.0,) * 3}
    (row,) = summary.claim_rows(judge(CLAIMS, measured))
    assert [t.claim.id for t in row.claims] == ["sogram-validation-map", "sogram-training-map"]
    assert row.here == ["enwik8*: α = 0.01: −50.0 %; exact Gramian +5.0 %"]
    assert len(row.wanted) == 2 and row.wanted[0] == "lift of MAP@10 over sampling, wanted above 0 %"
    assert row.span == ""


def test_a_row_of_many_corpora_says_their_range():
    corpora = (
        "enwik8",
        "enwik8-split1",
        "enwik8-split2",
        "miwiki",
        "miwiki-adagrad",
        "enwik8-titles",
        "fr-scale",
    )
    measured = {}
    for place, corpus in enumerate(corpora):
        for method, value in (
            ("sampling", 0.1),
            ("SOGram α=0.1", 0.09 + 0.01 * place),
            ("exact Gramian", 0.105),
        ):
            measured[f"{corpus}/{method}/validation MAP"] = (value, value, value)
        measured[f"{corpus}/SOGram α=0.1/steps"] = (1e6,) * 3
    (claim,) = (claim for claim in CLAIMS if claim.id == "sogram-validation-map")
    (row,) = summary.claim_rows(judge([claim], measured))
    assert (
        len(row.here) == 7 and row.span == "7 trainings: α = 0.1: −10.0 % to +50.0 %; nearest Gramian: +5.0 %"
    )


def test_a_row_counts_towers_that_are_not_trained():
    measured = {}
    for corpus, share in (("enwik8", 0.8), ("miwiki", 1.1)):
        for method, value in (("sampling", 0.1), ("SOGram α=0.1", 0.09)):
            measured[f"{corpus}/{method}/validation MAP"] = (value, 1.01 * value)
        measured[f"{corpus}/SOGram α=0.1/steps"] = (1e6, 1e6)
        measured[f"{corpus}/towers/share of the required MAP"] = (share, share)
    counts, where = told(judge(CLAIMS, measured))["sogram-validation-map"]
    assert counts == {FAIL: 1, Outcome.NOT_TRAINED: 1}
    assert where == "fails on miwiki*; towers not trained on enwik8*"


def told(verdicts):
    """The counts of each tested claim, and where they are."""
    return {
        line.claim.id: (dict(line.counts), where)
        for row in summary.claim_rows(verdicts)
        for line, where in zip(row.claims, row.where, strict=True)
    }


def test_values_are_compared_once_however_many_claims_they_answer():
    """A contrast compares more than the lift that it comes to where training falls."""
    rises = np.exp([0.0, 0.05, 0.09, 0.03, 0.06])
    p = stats.ttest_1samp(np.log(rises), 0).pvalue
    assert 0.05 / 2 < p < 0.05
    lift = made(left="{dataset}/a/v", right="{dataset}/b/v", **ABOVE_1)
    contrast = made(id="stronger", **CONTRAST)
    measured = {"toy/a/v": tuple(rises), "toy/b/v": (1.0,) * 5, "toy/a/t": (0.8,) * 5, "toy/b/t": (1.0,) * 5}
    assert lift.family == contrast.family
    again = made(id="again", left="{dataset}/a/v", right="{dataset}/b/v", **ABOVE_1)
    twice = judge([lift, again], measured)
    assert [v.outcome for v in twice] == [PASS, PASS]
    assert summary.tally(twice)[PASS] == 1
    assert [v.outcome for v in judge([lift, contrast], measured)] == [OPEN, OPEN]


def test_one_claim_at_two_alphas_is_corrected_for_both():
    rises = np.exp([0.0, 0.05, 0.09, 0.03, 0.06])
    assert 0.05 / 2 < stats.ttest_1samp(np.log(rises), 0).pvalue < 0.05
    pairs = [(0.01, 0.1), (0.001, 0.01)]
    names = [[f"{{dataset}}/SOGram α={alpha}/v" for alpha in pair] for pair in pairs]
    claims = [made(id=left, left=left, right=right, **ABOVE_1) for left, right in names]
    at = {"toy/SOGram α=0.1/v": np.ones(5), "toy/SOGram α=0.01/v": rises, "toy/SOGram α=0.001/v": rises**0.5}
    measured = {name: tuple(values) for name, values in at.items()}
    assert [v.outcome for v in judge(claims[:1], measured)] == [PASS]
    assert judge(claims, measured)[0].outcome == OPEN


@pytest.mark.parametrize("seed", range(20))
def test_families_are_corrected_as_holm_does(seed):
    """The literal procedure: p-values in ascending order, each against 5 % over the number left."""
    random = np.random.default_rng(seed)
    names = tuple("abcdef")
    ratios = {x: np.exp(random.normal(random.choice([-0.4, 0, 0.3]), 0.2, size=5)) for x in names}
    claim = made(
        each={"dataset": ("toy",), "method": names},
        left="{dataset}/{method}/error",
        right="{dataset}/one/error",
    )
    measured = {f"toy/{x}/error": tuple(values) for x, values in ratios.items()}
    verdicts = judge([claim], measured | {"toy/one/error": (1.0,) * 5})
    p = {x: stats.ttest_1samp(np.log(v), 0).pvalue for x, v in ratios.items()}
    rejected = set()
    for rank, x in enumerate(sorted(names, key=p.get)):
        if p[x] > 0.05 / (len(names) - rank):
            break
        rejected.add(x)
    assert {v.case[-1] for v in verdicts if v.outcome != OPEN} == rejected
    assert all((v.outcome == PASS) == (v.estimate < 1) for v in verdicts if v.outcome != OPEN)
