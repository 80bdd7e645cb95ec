"""The paper's claims: the YAML is whole, made measurements get the verdicts that they must, and kept ones again."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats

from experiments.report import claim_tables
from experiments.report.claims import CLAIMS, Claim, load_claims, number
from experiments.report.sections import Section
from experiments.report.verdicts import Outcome, gather, judge, rejudge, write_verdicts
from experiments.reproduce import corpora as datasets
from gramrun.base.errors import InputError

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference" / "claims.json"
WHOLE = {
    "id": "a-claim",
    "says": "One thing is smaller than another.",
    "source": "Section 4",
    "paper": "no number",
    "item": "gramian_error",
    "each": {"dataset": ("toy",)},
    "measure": "ratio",
    "left": "{dataset}/a/error",
    "right": "{dataset}/b/error",
    "below": 1.0,
    "why": "the sign",
}


def made(**changes):
    return Claim(**{key: value for key, value in {**WHOLE, **changes}.items() if value is not None})


def verdict(claim, **measured):
    """The one verdict on a claim, from measurements of the corpus "toy"."""
    (only,) = judge([claim], {f"toy/{name.replace('_', '/')}": v for name, v in measured.items()})
    return only


def test_the_claims_are_whole_and_speak_of_corpora_that_there_are():
    loaded = load_claims()
    known = set(datasets.DATASETS) | {path.name for path in (ROOT / "configs").iterdir() if path.is_dir()}
    for claim in loaded:
        assert set(claim.each["dataset"]) <= known, claim.id
        for case in claim.cases():  # every placeholder is named in `each`, and every one of `each` is used
            text = " ".join(name for side in claim.names(case) for name in side)
            assert "{" not in text
            told = {key: value for key, value in case.items() if value != "planted-clusters"}
            assert all(value in text for value in told.values()), claim.id  # scaling's names have no corpus
            for need in claim.needs:
                assert need.least(case) > 0 and "{" not in need.name.format(**case)
    # Sections 4.1 to 4.3 and the three appendices with experiments are all spoken of.
    for source in ("Section 4.1", "Section 4.2", "Section 4.3", "Appendix B", "Appendix D", "Appendix E"):
        assert any(claim.source.startswith(source) for claim in loaded), source


def test_tolerances_are_by_the_two_rules_that_the_file_states():
    for claim in load_claims():
        if claim.why in ("half to twice the lift", "half to twice the loss"):
            change = claim.expected - 1
            assert sorted(claim.between) == pytest.approx(sorted([1 + change / 2, 1 + 2 * change]), abs=5e-4)
        if claim.why == "± 20 %":
            assert claim.between == pytest.approx((0.8 * claim.expected, 1.2 * claim.expected), abs=5e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"below": None}, "one of between, above and below"),
        ({"above": 2.0}, "one of between, above and below"),
        ({"below": None, "between": (0.5, 2.0)}, "expected and between go together"),
        ({"below": None, "between": (1.0, 2.0), "expected": 1.0}, "room on both sides"),
        ({"right": None}, "right: belongs to a ratio"),
        ({"measure": "value"}, "right: belongs to a ratio"),
        ({"each": {"B": (1,)}}, "needs a dataset"),
        ({"each": {"dataset": ()}}, "needs a dataset"),
        ({"id": "Not a name"}, "pattern"),
        ({"tolerance": 0.1}, "Extra inputs"),
        ({"measure": "quotient"}, "Input should be"),
        ({"measure": "contrast"}, "two names each in a contrast"),
        ({"needs": [{"name": "toy/steps", "at_least": "many"}]}, "is a number, or one over a placeholder"),
    ],
)
def test_a_claim_that_is_not_whole_is_refused(changes, message, tmp_path):
    file = tmp_path / "claims.yaml"
    values = {key: value for key, value in {**WHOLE, **changes}.items() if value is not None}
    values["each"] = {key: list(value) for key, value in values["each"].items()}
    values |= {key: list(values[key]) for key in ("between",) if key in values}
    file.write_text(yaml.safe_dump({"corpora": {}, "claims": [values]}))
    with pytest.raises(InputError, match=message):
        load_claims(file)


def test_two_claims_of_one_name_are_refused(tmp_path):
    text = CLAIMS.read_text(encoding="utf-8").replace("id: movielens-lift", "id: movielens-sign")
    file = tmp_path / "claims.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="two claims are called movielens-sign"):
        load_claims(file)


PASS, FAIL, OPEN = Outcome.PASS, Outcome.FAIL, Outcome.NOT_DECIDED
VALUE = {"measure": "value", "right": None, "below": None}
CONTRAST = {
    "measure": "contrast",
    "left": ("{dataset}/a/v", "{dataset}/b/v"),
    "right": ("{dataset}/a/t", "{dataset}/b/t"),
    "below": None,
    "above": 1.0,
}
PEAK = {**VALUE, "measure": "interior peak", "left": "{dataset}/a λ=*", "above": 1.0}


@pytest.mark.parametrize(
    ("changes", "measured", "outcome"),
    [
        ({}, {"a_error": (1.0, 1.1, 0.9), "b_error": (2.0, 2.1, 1.9)}, PASS),
        ({}, {"a_error": (2.0, 2.1, 1.9), "b_error": (1.0, 1.1, 0.9)}, FAIL),
        ({}, {"a_error": (1.0, 1.2, 0.7), "b_error": (1.1, 1.0, 1.0)}, OPEN),
        ({"below": None, "above": 1.0}, {"a_error": (2.0, 2.1), "b_error": (1.0, 1.02)}, PASS),
        ({"measure": "difference", "below": 0.0}, {"a_error": (1.0, 1.1), "b_error": (2.0, 2.1)}, PASS),
        ({"measure": "difference", "below": 0.0}, {"a_error": (3.0, 3.1), "b_error": (2.0, 2.1)}, FAIL),
        ({"measure": "difference", "below": 0.0}, {"a_error": (1.0, 3.1), "b_error": (2.0, 2.1)}, OPEN),
        ({**VALUE, "expected": 5.0, "between": (4.0, 6.0)}, {"a_error": (4.9, 5.0, 5.1)}, PASS),
        ({**VALUE, "expected": 5.0, "between": (4.0, 6.0)}, {"a_error": (6.9, 7.0, 7.1)}, FAIL),
        ({**VALUE, "expected": 5.0, "between": (4.0, 6.0)}, {"a_error": (2.9, 3.0, 3.1)}, FAIL),
        ({**VALUE, "expected": 5.0, "between": (4.0, 6.0)}, {"a_error": (5.8, 6.0, 6.1)}, OPEN),
        ({**VALUE, "expected": 5.0, "between": (4.0, 6.0)}, {"a_error": (0.0, 5.0, 10.0)}, OPEN),
        ({**VALUE, "measure": "count", "expected": 85e3, "between": (84e3, 86e3)}, {"a_error": (85e3,)}, PASS),
        ({**VALUE, "measure": "count", "expected": 85e3, "between": (84e3, 86e3)}, {"a_error": (8e3,)}, FAIL),
        (PEAK, {"a λ=1": (1.0, 1.1), "a λ=10": (2.0, 2.1), "a λ=100": (1.5, 1.57)}, PASS),
        (PEAK, {"a λ=1": (1.0, 1.1), "a λ=10": (2.0, 2.1), "a λ=100": (2.5, 2.6)}, FAIL),
        (PEAK, {"a λ=1": (1.0, 1.1), "a λ=10": (2.0, 2.1), "a λ=100": (1.5, 2.9)}, OPEN),
        ({}, {"a_error": (1.0, 1.0, 1.0), "b_error": (1.0, 1.0, 1.0)}, OPEN),  # a tie is not below
        ({"below": None, "above": 1.0}, {"a_error": (1.0, 1.0), "b_error": (1.0, 1.0)}, OPEN),
        ({**VALUE, "measure": "count", "expected": 85e3, "between": (84e3, 86e3)}, {"a_error": (84e3,)}, PASS),
        (CONTRAST, {"a_v": (1.2, 1.21), "b_v": (1.0, 1.0), "a_t": (1.0, 1.01), "b_t": (1.0, 1.0)}, PASS),
        (CONTRAST, {"a_v": (0.9, 0.91), "b_v": (1.0, 1.0), "a_t": (0.5, 0.5), "b_t": (1.0, 1.0)}, FAIL),  # worse in both
        (CONTRAST, {"a_v": (1.2, 1.21), "b_v": (1.0, 1.0), "a_t": (2.0, 2.1), "b_t": (1.0, 1.0)}, FAIL),  # more in training
        (CONTRAST, {"a_v": (0.8, 1.3), "b_v": (1.0, 1.0), "a_t": (0.2, 0.21), "b_t": (1.0, 1.0)}, OPEN),
    ],
)  # fmt: skip
def test_made_measurements_get_the_verdict_that_they_must(changes, measured, outcome):
    found = verdict(made(**changes), **measured)
    assert found.outcome == outcome, found.reason
    words = {PASS: "all of it ", FAIL: "all of it ", OPEN: "so not decided"}
    assert found.claim.measure == "count" or words[outcome] in found.reason
    assert found.low <= found.estimate <= found.high


def test_the_interval_is_student_s_over_paired_seeds():
    left, right = (1.0, 2.0, 3.5, 4.0), (0.9, 2.2, 3.0, 4.4)
    for measure, pairs in (("ratio", np.divide(left, right)), ("difference", np.subtract(left, right))):
        found = verdict(made(measure=measure), a_error=left, b_error=right)
        wanted = stats.ttest_1samp(pairs, 0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
        assert found.estimate == pytest.approx(np.mean(pairs))
    # Pairing matters: the same numbers in another order say less.
    noisy = {"a_error": (1.0, 2.0, 4.0), "b_error": (1.1, 2.2, 4.4)}
    assert verdict(made(), **noisy).outcome == PASS
    assert verdict(made(), a_error=(4.0, 1.0, 2.0), b_error=(1.1, 2.2, 4.4)).outcome == OPEN


def test_a_quotient_of_quotients():
    claim = made(left=("{dataset}/a", "{dataset}/b"), right=("small/a", "small/b"), below=None, above=1.0)
    measured = {"toy/a": (6.0, 6.0), "toy/b": (2.0, 2.1), "small/a": (2.0, 2.2), "small/b": (1.0, 1.0)}
    (found,) = judge([claim], measured)
    assert found.estimate == pytest.approx(np.mean([3 / 2.0, (6 / 2.1) / 2.2]))
    assert set(found.measured) == set(measured)


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        ({}, "not measured by this profile: toy/a/error, toy/b/error"),
        ({"a_error": (1.0, 2.0)}, "not measured by this profile: toy/b/error"),
        ({"a_error": (1.0,), "b_error": (2.0,)}, "one seed gives no interval"),
        ({"a_error": (1.0, 2.0), "b_error": (2.0, 1.0, 3.0)}, "toy/a/error has 2, toy/b/error has 3"),
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
    claim = made(below=1 / 6)
    inf = math.inf
    assert verdict(claim, a_error=(inf, inf), b_error=(1.0, 1.0)).outcome == FAIL
    assert verdict(claim, a_error=(0.9, inf), b_error=(1.0, 1.0)).outcome == FAIL  # no seed was fast enough
    assert verdict(claim, a_error=(0.1, inf), b_error=(1.0, 1.0)).outcome == OPEN
    assert "∞" in verdict(claim, a_error=(0.1, inf), b_error=(1.0, 1.0)).reason


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
    plain = made(measure="difference between corpora", below=0.0)
    found = verdict(plain, a_error=(-2.0, -2.1), b_error=(0.1, 0.2, 0.3))
    wanted = stats.ttest_ind((-2.0, -2.1), (0.1, 0.2, 0.3), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert found.outcome == PASS
    assert "one seed" in verdict(plain, a_error=(1.0,), b_error=(0.1, 0.2)).reason


@pytest.mark.parametrize(
    ("need", "measured", "reason"),
    [
        ({"name": "{dataset}/trajectory steps", "at_least": 3000}, (600.0,), "trajectory too short: 600 steps, 3,000 needed"),
        ({"name": "{dataset}/trajectory steps", "at_least": "3/{α}"}, (299.0,), "trajectory too short: 299 steps, 300 needed"),
        ({"name": "{dataset}/scale trajectory steps", "at_least": "3/{α}"}, (20.0,), "trajectory too short: 20 steps, 300 needed"),
        ({"name": "{dataset}/trajectory passes B={B}", "at_least": 1}, (2.0, 0.5), "trajectory too short: 0.5 passes with B = 128, 1 needed"),
        ({"name": "{dataset}/SOGram α={α}/steps", "at_least": "3/{α}"}, (75.0,), "training too short: 75 steps, 300 needed"),
        ({"name": "{dataset}/a/largest speed-up", "at_least": 25}, (10.0,), "largest speed-up: 10, 25 needed"),
    ],
)  # fmt: skip
def test_runs_that_are_too_short_for_a_claim_do_not_fail_it(need, measured, reason):
    each = {"dataset": ("toy",), "α": ("0.01",), "B": ("128",)}
    claim = made(each=each, needs=(need,))
    name = need["name"].format(dataset="toy", α="0.01", B="128")
    bad = {"toy/a/error": (2.0, 2.1), "toy/b/error": (1.0, 1.0)}
    (short,) = judge([claim], bad | {name: measured})
    assert (short.outcome, short.reason) == (Outcome.NOT_TESTED, reason)
    (enough,) = judge([claim], bad | {name: (1e9,)})
    assert (enough.outcome, enough.seeds) == (FAIL, 2)
    (unknown,) = judge([claim], bad)
    assert unknown.reason == f"not known whether its runs are long enough: no {name}"


def test_what_neither_side_reached_says_after_how_long():
    each = {"dataset": ("toy",), "α": ("0.001",)}
    claim = made(each=each, needs=({"name": "toy/scale trajectory steps", "at_least": "3/{α}"},))
    inf = math.inf
    measured = {"toy/a/error": (inf, inf), "toy/b/error": (inf, 7.0), "toy/scale trajectory steps": (6000.0,)}
    (found,) = judge([claim], measured)
    assert found.outcome == Outcome.NOT_TESTED
    assert found.reason == "neither side got there in 6,000 steps, in 1 of 2 seeds; 1/α = 1,000"


def test_placeholders_make_a_row_each_with_the_command_that_measures_it():
    corpora = ("enwik8", "simple-scale")
    claim = made(each={"dataset": corpora, "B": (1, 2)}, left="{dataset}/a {B}", right="{dataset}/b {B}")
    measured = {"simple-scale/a 2": (1.0, 1.1), "simple-scale/b 2": (2.0, 2.0)}
    found = judge([claim], measured, profile="standard")
    assert [(v.dataset, v.case) for v in found] == [
        (dataset, f"B = {size}") for dataset in corpora for size in (1, 2)
    ]
    assert [v.outcome == PASS for v in found] == [False, False, False, True]
    call = "python -m experiments.reproduce --profile {} --items gramian_error --datasets {}"
    assert found[0].command == call.format("quick", "enwik8")  # another profile has it
    assert found[3].command == call.format("standard", "simple-scale")
    (line,) = claim_tables.claim_lines(found)
    assert (line.counts, line.details, line.corpora) == ({PASS: 1}, "", ("simple-scale†",))
    assert line.absent == ("enwik8*: in profile quick", "simple-scale† (B = 1): in profile standard")
    both = judge([claim], measured | {"enwik8/a 1": (1.0, 1.1), "enwik8/b 1": (2.0, 2.0)})
    (line,) = claim_tables.claim_lines(both)
    assert line.command == call.format("standard", "enwik8 simple-scale")
    (paper,) = judge([made(each={"dataset": ("wikipedia-fr",)})], {}, profile="quick")
    assert paper.command == call.format("paper", "wikipedia-fr")
    (nowhere,) = judge([made(each={"dataset": ("enwik8-titles",)}, item="inner_products")], {})
    assert nowhere.command == "no profile measures it"
    two = made(measure="ratio between corpora", left="enwik8/a", right="simple-scale/a", item="trade_off")
    assert judge([two], {})[0].command.endswith("--items trade_off --datasets enwik8 simple-scale")


def test_sections_may_share_a_measurement_but_not_disagree():
    one = Section("one", "One", "", "", measured={"toy/a": (1.0, math.nan)})
    same = Section("two", "Two", "", "", measured={"toy/a": (1.0, math.nan), "toy/b": (3,)})
    assert set(gather([one, same])) == {"toy/a", "toy/b"}
    with pytest.raises(ValueError, match="toy/a has other numbers"):
        gather([one, Section("three", "Three", "", "", measured={"toy/a": (1.0, 2.0)})])


def turned(factor):
    """Made measurements for all claims on errors: SOGram's are `factor` times sampling's."""
    noise = np.array([0.99, 1.0, 1.01])
    return {
        f"enwik8/{method}/left error B={size}": tuple(size_factor * scale * noise)
        for method, scale in (("sampling", 1.0), ("SOGram α=0.01", factor))
        for size, size_factor in ((128, 0.3), (1024, 0.1))
    } | {"enwik8/trajectory steps": (600.0,)}


def test_when_the_numbers_turn_the_words_turn():
    good, bad = (judge(load_claims(), turned(factor)) for factor in (0.3, 3.0))
    assert claim_tables.summary(good) != claim_tables.summary(bad)
    by_id = {line.claim.id: line for line in claim_tables.claim_lines(bad)}
    assert by_id["sogram-nearer-than-sampling"].counts == {FAIL: 2}
    assert "in 5 comparisons, which are of 5 different sets" in claim_tables.summary(bad)
    assert "of 5 of 95 % about 0 miss" in claim_tables.rule(bad)
    assert by_id["sogram-nearer-than-sampling"].details == "fails on enwik8*"
    assert by_id["error-falls-with-batch"].counts == {PASS: 2}
    names = {claim.id for group in claim_tables.untested(bad) for claim in group.claims}
    assert names | set(by_id) == {claim.id for claim in load_claims()}
    assert not names & set(by_id)
    assert sum(claim_tables.tally(bad).values()) == len(bad)


def test_one_place_where_a_claim_fails_is_named_by_its_case():
    measured = turned(0.3) | {"enwik8/SOGram α=0.01/left error B=128": (2.0, 2.1, 2.2)}
    lines = {line.claim.id: line for line in claim_tables.claim_lines(judge(load_claims(), measured))}
    assert lines["sogram-nearer-than-sampling"].counts == {PASS: 1, FAIL: 1}
    assert lines["sogram-nearer-than-sampling"].details == "fails on enwik8* (B = 128)"


def test_comparisons_are_those_that_have_all_their_numbers():
    found = judge(load_claims(), turned(0.3) | {"movielens-1m/sampling/left error B=128": (0.1,)})
    rows = claim_tables.comparisons(found)
    assert len(rows) == sum(v.tested for v in found) > 0
    one_seed = judge([made()], {"toy/a/error": (1.0,), "toy/b/error": (2.0,)})
    (row,) = claim_tables.comparisons(one_seed)
    assert (row.interval, row.wanted) == ("–", "one seed gives no interval")
    (group,) = claim_tables.untested(one_seed)
    assert group.reason == "toy*: one seed gives no interval"


def test_kept_verdicts_come_out_the_same_from_their_own_numbers(tmp_path):
    claim = made(below=1 / 6)
    found = judge(
        [*load_claims(), claim], turned(0.3) | {"toy/a/error": (0.1, math.inf), "toy/b/error": (1.0, 1.0)}
    )
    write_verdicts(found, tmp_path / "claims.json")
    rows, again = rejudge([*load_claims(), claim], tmp_path / "claims.json")
    assert len(Counter(row["outcome"] for row in rows)) >= 3
    assert key(rows) == [(v.claim.id, v.dataset, v.case, v.outcome.value, v.reason) for v in again]


def key(rows):
    return [tuple(row[name] for name in ("claim", "dataset", "case", "outcome", "reason")) for row in rows]


@pytest.mark.skipif(not REFERENCE.exists(), reason="no reference verdicts are committed yet")
def test_the_committed_verdicts_follow_from_the_claims_as_they_are_now():
    rows, again = rejudge(load_claims(), REFERENCE)
    assert [row[:4] for row in key(rows)] == [(v.claim.id, v.dataset, v.case, v.outcome.value) for v in again]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.30761, "0.3076"), (-1.5, "−1.5"), (1.0, "1"), (85000.0, "85,000"), (math.inf, "∞"), (None, "–"), (1e-7, "1e−07")],
)  # fmt: skip
def test_numbers_as_they_are_read(value, text):
    assert number(value) == text
