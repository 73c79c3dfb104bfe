"""Two runs of an owner's own program: paired by seed within a sweep, a changed definition named, never citable."""

from __future__ import annotations

import json

import pytest

from bridge.gate.comparability import MeasuredRun
from bridge.gate.comparison import compare
from tests.corpus.gate.workloads import LOSSES, SETTINGS, paired, trained


def run(case, decision="evidence"):
    files = {path: json.dumps(value).encode() for path, value in case.reports.items()}
    return MeasuredRun(files, case.record_value(), case.spec_value(), decision)


def reasons(comparison):
    return {reason.text for reason in comparison.reasons}


@pytest.mark.parametrize(("shift", "word"), [(0.5, "higher (worse)"), (-0.5, "lower (better)")])
def test_the_same_seeds_are_paired(shift, word):
    comparison = compare(run(trained()), run(trained(tuple(loss + shift for loss in LOSSES))))
    (difference,) = comparison.differences
    assert difference.metric == "final_loss"
    assert (
        difference.wording
        == f"final_loss: B {word}: {shift:+.4f} nats [{shift:+.4f}, {shift:+.4f}] 96.9 %, 6 paired seeds"
    )
    assert comparison.reasons[0].kind == "weaker"


def test_other_seeds_are_two_lists_and_no_more():
    other = trained(tuple(loss + 0.5 for loss in LOSSES))
    for command in other.spec["commands"]:
        command["seed"] += 1
    (difference,) = compare(run(trained()), run(other)).differences
    assert difference.interval is None
    assert difference.wording.endswith("no difference shown: +0.5000 nats, 6 seeds each, not paired")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (12400.0, "higher (worse): +55 bytes"),
        (12300.0, "lower (better): -45 bytes"),
        (12345.0, "no difference shown: +0 bytes"),
    ],
)
def test_numbers_that_no_seed_changes_need_no_pairs(size, words):
    other = trained((size,) * 6, unit="bytes", bounds=None)
    for command in other.spec["commands"]:
        command["seed"] += 1
    (difference,) = compare(run(trained((12345.0,) * 6, unit="bytes", bounds=None)), run(other)).differences
    assert difference.wording == f"final_loss: B {words}, each the same in all of its runs"
    assert difference.interval is None


@pytest.mark.parametrize(
    ("more", "words"),
    [(0.0, "no difference shown: +0 bytes"), (300.0, "higher (worse): +300 bytes")],
)
def test_numbers_that_runs_share_to_some_digits_differ_in_these_or_not_at_all(more, words):
    """One has 12,345,678 bytes in each of its runs; the other has fewer in some of its own, and more in others."""
    sizes = (12345672.0, 12345676.0, 12345680.0, 12345684.0, 12345688.0, 12345712.0)
    first = trained((12345678.0,) * 6, unit="bytes", bounds=None)
    second = trained(tuple(size + more for size in sizes), unit="bytes", bounds=None)
    for command in second.spec["commands"]:
        command["seed"] += 1
    (difference,) = compare(run(first), run(second)).differences
    assert difference.wording == f"final_loss: B {words}, each the same in all of its runs to 6 digits"
    (back,) = compare(run(second), run(first)).differences
    word = "lower (better): -300 bytes" if more else words
    assert back.wording == f"final_loss: B {word}, each the same in all of its runs to 6 digits"


def test_a_changed_definition_is_named():
    other = trained()
    other.spec["workload"]["digest"] = "a" * 64
    other.record["preset_digest"] = "b" * 64
    texts = reasons(compare(run(trained()), run(other)))
    assert any(text.startswith("the program or what it runs with was changed between them") for text in texts)
    assert any(text.startswith(f"other definition of {other.record['preset']}") for text in texts)


def declaring(losses, *more):
    case = trained(losses)
    case.spec["workload"]["metrics"] += more
    return run(case)


def test_several_metrics_are_several_questions():
    second = SETTINGS["median"] | {"name": "last_loss"}
    alone = compare(declaring(LOSSES), declaring([loss + 0.5 for loss in LOSSES])).differences
    both = compare(declaring(LOSSES, second), declaring([loss + 0.5 for loss in LOSSES], second)).differences
    assert [difference.detail["effect"] for difference in alone] == ["higher"]
    assert [difference.detail["effect"] for difference in both] == ["no difference shown"] * 2
    assert both[0].wording.endswith("6 paired seeds, p 0.062 among the metrics compared (Holm)")


@pytest.mark.parametrize("count", [2, 6])
def test_cells_of_a_sweep_whose_numbers_no_seed_changes_differ_by_them_and_by_no_sign_of_pairs(count):
    """They have the same seeds. Of two pairs there is no interval, and six signs are too few for two metrics."""
    also = SETTINGS["median"] | {"name": "last_loss"}
    compared = compare(*(declaring((size,) * count, also) for size in (12.0, 12.5))).differences
    words = "B higher (worse): +0.5000 nats, each the same in all of its runs"
    assert [difference.wording for difference in compared] == [f"final_loss: {words}", f"last_loss: {words}"]
    assert all(difference.detail["paired"] for difference in compared)


def test_what_is_not_compared_is_named():
    count = {"name": "solved", "aggregate": "count", "unit": "items", "items": "/items", "better": "higher"}
    texts = reasons(compare(declaring(LOSSES, count), declaring(LOSSES, count, count | {"name": "only_b"})))
    assert "metric solved (aggregate count) is not compared: only medians, means and ratios are" in texts
    assert "metric only_b is not declared alike in both" in texts


def test_what_was_rejected_or_is_declared_otherwise_is_not_compared():
    assert compare(run(trained(), "rejected"), run(trained())).differences == ()
    comparison = compare(run(trained()), run(paired()))
    assert comparison.differences == ()
    assert "metric final_loss is not declared alike in both" in reasons(comparison)


def test_ratios_of_two_programs_agree_or_differ_like_the_engines_own():
    same = compare(run(paired((0.10, 0.11) * 4)), run(paired((0.11, 0.10) * 4)))
    (difference,) = same.differences
    assert (difference.metric, difference.detail) == ("speedup", {"agree": True})
    assert difference.wording.startswith("speed-ups over 8 and 8 launches agree: 1.1")
    assert "impossible" not in {reason.kind for reason in same.reasons}
    (apart,) = compare(run(paired((0.10, 0.11) * 4)), run(paired((0.30, 0.31) * 4))).differences
    assert "differ by more than their launches say" in apart.wording
    assert apart.value == pytest.approx(1.2214, rel=0.01)


def loaded(log):
    """Return a run in whose every second launch its host held processors, which moves its ratio by a half."""
    case = paired((log, log + 0.5) * 10)
    case.spec["commands"][0]["launches"] |= {"load": "drawn"}
    for launch in case.record["launches"]:
        launch["loaded"] = int(launch["number"] > 0 and launch["number"] % 2 == 0)
    return case


def test_ratios_at_drawn_loads_differ_where_they_do_at_each_load_however_far_the_loads_are_apart():
    (apart,) = compare(run(loaded(0.1)), run(loaded(0.2))).differences
    assert "speed-ups over 20 and 20 launches differ by more than their launches say" in apart.wording
    assert apart.value == pytest.approx(1.1052, rel=0.01)
    (same,) = compare(run(loaded(0.1)), run(loaded(0.1))).differences
    assert same.detail == {"agree": True}


def test_a_load_that_was_drawn_in_one_of_them_alone_is_named():
    reason = "only in B the host held processors in every second launch (--load drawn)"
    assert reason in reasons(compare(run(paired()), run(loaded(0.1))))
    assert reason not in reasons(compare(run(loaded(0.1)), run(loaded(0.1))))
