"""Two runs of an owner's own program: paired by seed within a sweep, a changed definition named, never citable."""

from __future__ import annotations

import json

import pytest

from bridge.gate import MeasuredRun, compare
from tests.corpus.gate.workloads import LOSSES, paired, trained


def run(case, decision="evidence"):
    files = {path: json.dumps(value).encode() for path, value in case.reports.items()}
    return MeasuredRun(files, case.record_value(), case.spec_value(), decision)


def reasons(found):
    return {reason.text for reason in found.reasons}


@pytest.mark.parametrize(("shift", "word"), [(0.5, "higher (worse)"), (-0.5, "lower (better)")])
def test_the_same_seeds_are_paired(shift, word):
    found = compare(run(trained()), run(trained(tuple(loss + shift for loss in LOSSES))))
    (one,) = found.differences
    assert one.metric == "final_loss"
    assert one.wording == f"final_loss: B {word}: {shift:+.4g} nats [{shift:+.4g}, {shift:+.4g}] 96.9 %, 6 paired seeds"
    assert found.reasons[0].kind == "weaker"


def test_other_seeds_are_two_lists_and_no_more():
    other = trained(tuple(loss + 0.5 for loss in LOSSES))
    for command in other.spec["commands"]:
        command["seed"] += 1
    (one,) = compare(run(trained()), run(other)).differences
    assert one.interval is None
    assert one.wording.endswith("no difference shown: +0.5 nats, 6 seeds each, not paired")


def test_a_changed_definition_is_named():
    other = trained()
    other.spec["workload"]["digest"] = "a" * 64
    other.record["preset_digest"] = "b" * 64
    said = reasons(compare(run(trained()), run(other)))
    assert any(text.startswith("the program or what it runs with was changed between them") for text in said)
    assert any(text.startswith(f"other definition of {other.record['preset']}") for text in said)


def test_what_was_rejected_or_is_declared_otherwise_is_not_compared():
    assert compare(run(trained(), "rejected"), run(trained())).differences == ()
    found = compare(run(trained()), run(paired()))
    assert found.differences == ()
    assert "metric final_loss is not declared alike in both" in reasons(found)
