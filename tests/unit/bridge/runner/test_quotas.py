"""What a runner's sign of life says of the hour's shares."""

from __future__ import annotations

import datetime as dt

import pytest

from bridge.limits import QUOTAS_MAX_COUNT
from bridge.system.clock import parse_rfc3339

POLICY = 'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\n'


def told(w, runner):
    return {quota.principal: quota for quota in runner._admission.quotas()}


def test_a_beacon_counts_down_what_was_taken_within_the_hour(world):
    w = world(policy_text=f"{POLICY}rate_per_hour = 3\nquota_per_hour = 5\n")
    w.ask()
    w.ask()
    runner = w.serve_once()
    runner.step()
    quotas = told(w, runner)
    assert (quotas["unsigned"].per_hour, quotas["unsigned"].left) == (3, 1)
    until = parse_rfc3339(quotas["unsigned"].next) - w.clock.now()
    assert dt.timedelta(0) < until <= dt.timedelta(hours=1)
    assert (quotas["*"].per_hour, quotas["*"].left, quotas["*"].next) == (5, 5, None)
    beacons = [beacon for _, beacon in w.requester.read_beacons()]
    assert [{quota.principal for quota in beacon.quotas} for beacon in beacons] == [{"unsigned", "*"}]
    claimed = w.process.journal._claimed
    an_hour_ago = [(time - dt.timedelta(hours=1), name) for time, name in claimed]
    claimed.clear()
    claimed.extend(an_hour_ago)
    assert told(w, runner)["unsigned"].left == 3


@pytest.mark.parametrize("bounds", ["rate_per_hour = 0\nquota_per_hour = 0\n"])
def test_what_is_not_bounded_is_not_told(world, bounds):
    w = world(policy_text=f"{POLICY}{bounds}")
    w.ask()
    assert told(w, w.serve_once()) == {}


def test_a_name_that_asked_nothing_is_not_told_and_then_anybodys_share_is_not_either(world):
    w = world(policy_text=f'{POLICY}[quotas]\n"quiet@example.org" = 2\n')
    assert set(told(w, w.runner())) == {"unsigned"}


def test_no_more_names_are_told_than_a_beacon_holds(world):
    w = world(policy_text=POLICY)
    runner = w.runner()
    claimed = w.process.journal._claimed
    claimed.extend((w.clock.now(), f"agent-{number}") for number in range(2 * QUOTAS_MAX_COUNT))
    quotas = told(w, runner)
    assert len(quotas) == QUOTAS_MAX_COUNT
    assert {"unsigned", f"agent-{2 * QUOTAS_MAX_COUNT - 1}"} < set(quotas)
    assert not {"*", "agent-0"} & set(quotas)
