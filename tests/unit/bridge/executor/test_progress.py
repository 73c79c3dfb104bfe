"""How far a run is, from its commands, its program's marks and its launches."""

from __future__ import annotations

import pytest

from bridge.executor.command.marks import MarkReader
from bridge.executor.command.progress import ProgressMeter
from bridge.records.claim import RunProgress
from bridge.records.jobspec import Command
from bridge.records.run import SampleMark
from bridge.records.turns import LaunchSeries, StopRule

NAMES = ("train", "check")


@pytest.fixture
def updates():
    return []


def meter(updates, at, *, seeds=False):
    commands = [Command(name=name, argv=("/x",), seed=number if seeds else None) for number, name in enumerate(NAMES)]
    return ProgressMeter(commands, lambda: at[0], updates.append), commands


def ended(sample: str) -> SampleMark:
    return SampleMark(event="end", sample=sample, token_digest=None, t_s=0.0)


def test_samples_that_end_are_counted_out_of_those_that_the_program_planned(updates):
    at = [0.0]
    counted, commands = meter(updates, at)
    counted.begin(commands[0])
    at[0] = 10.0  # loading a model is no part of the pace
    counted.plan(5)
    at[0] = 14.0
    counted.mark(ended("a"))
    counted.mark(ended("b"))
    assert updates[0] == RunProgress(step="train", number=1, steps=2)
    assert (updates[-1].unit, updates[-1].done, updates[-1].most, updates[-1].left_s) == ("sample", 2, 5, 6.0)
    counted.begin(commands[1])
    assert updates[-1] == RunProgress(step="check", number=2, steps=2)


def test_a_program_that_goes_beyond_its_plan_has_none(updates):
    counted, commands = meter(updates, [0.0])
    counted.begin(commands[0])
    counted.plan(1)
    for name in "ab":
        counted.mark(ended(name))
    assert (updates[-1].done, updates[-1].most, updates[-1].left_s) == (2, None, None)


def test_repeats_of_one_program_have_a_pace_without_marks(updates):
    at = [0.0]
    counted, commands = meter(updates, at, seeds=True)
    counted.begin(commands[0])
    assert updates[-1].left_s is None
    at[0] = 30.0
    counted.begin(commands[1])
    assert updates[-1].left_s == 30.0


def test_launches_are_counted_without_the_one_that_calibrates(updates):
    at = [0.0]
    counted, commands = meter(updates, at)
    counted.begin(commands[0])
    counted.mark(ended("a"))
    at[0] = 8.0
    for done in range(1, 4):
        counted.launched(done, 20)
    assert (updates[-1].unit, updates[-1].done, updates[-1].most, updates[-1].left_s) == ("launch", 2, 20, 72.0)


@pytest.mark.parametrize(
    ("line", "plans", "dropped"),
    [
        (b'{"event":"plan","samples":60}\n', [60], 0),
        (b'{"event":"plan","samples":true}\n', [], 1),
        (b'{"event":"plan","samples":0}\n', [], 1),
        (b'{"event":"plan","samples":1e9}\n', [], 1),
        (b'{"event":"plan","samples":60,"more":1}\n', [], 1),
    ],
)
def test_a_plan_is_a_line_of_its_own_and_no_mark(line, plans, dropped):
    planned = []
    reader = MarkReader(on_plan=planned.append)
    reader.feed(line, 0.0)
    assert (planned, reader.marks, reader.dropped) == (plans, [], dropped)


def test_what_is_left_of_a_series_ends_with_the_time_that_it_is_allowed(updates):
    at = [0.0]
    rule = StopRule(least=8, most=20, allowed_s=700.0)
    series = LaunchSeries(arms=("a", "b"), rule=rule, unit="samples", solo_s=0.0)
    command = Command(name="launch", argv=("/x",), launches=series)
    counted = ProgressMeter([command], lambda: at[0], updates.append)
    counted.begin(command)
    at[0] = 200.0
    counted.launched(3, 20)  # the first one calibrates
    assert (updates[-1].done, updates[-1].left_s) == (2, 600.0)  # 500 in which a launch begins, and the last one's 100
    at[0] = 800.0
    counted.launched(9, 20)
    assert updates[-1].left_s == 100.0
