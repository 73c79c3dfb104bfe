"""What a name may still ask within the hour: in every document about runs, as live runners say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.client.clone.config import SigningChoice, discover
from bridge.client.connection.quotas import quotas_of, used_up
from bridge.mcp.answers import summary
from bridge.records.bus import QuotaUse
from bridge.records.request import RunnerSelector
from bridge.system.clock import rfc3339
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost

AGENT = "agent@example.org"
PROBE = ("mlx-env-probe", RunnerSelector())
NEXT = "2026-11-20T10:40:00.000Z"


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


@pytest.fixture
def host(requester):
    return ScriptedHost(requester.bus, requester.clock)


def session_of(requester, principal=None):
    session = requester.open(
        discover(requester.folder, requester.surroundings(None, None).environment), requester.clock
    )
    signing = None if principal is None else SigningChoice("/a/key", principal)
    return replace(session, settings=replace(session.settings, signing=signing), _looks=[])


def test_what_is_left_is_in_the_documents_of_run_status_and_ls(requester, host):
    host.beat(quotas=(QuotaUse(principal="unsigned", per_hour=10, left=7, next=NEXT),))
    now = rfc3339(requester.clock.now())
    quotas = [{"principal": "unsigned", "runner": "mini", "per_hour": 10, "left": 7, "next": NEXT, "as_of": now}]
    sent = requester.run("run", "mlx-env-probe", "--json").document
    assert sent["quotas"] == quotas
    assert requester.run("status", sent["id"], "--json").document["quotas"] == quotas
    assert requester.run("ls", "--json").document["quotas"] == quotas
    assert "quotas" not in summary(sent, {})
    few = {**sent, "quotas": [{**quotas[0], "left": 3}]}
    assert summary(few, {})["quotas"] == few["quotas"]


def test_where_no_runner_bounds_a_name_nothing_is_said(requester, host):
    host.beat()
    sent = requester.run("run", "mlx-env-probe", "--json").document
    assert sent["quotas"] == []
    assert "quotas" not in summary(sent, {})


def test_a_name_is_told_its_own_share_and_one_that_asked_nothing_that_of_anybody(requester, host):
    own, anybody = (
        QuotaUse(principal=AGENT, per_hour=60, left=2, next=NEXT),
        QuotaUse(principal="*", per_hour=60, left=60),
    )
    host.beat(quotas=(QuotaUse(principal="unsigned", per_hour=10, left=0, next=NEXT), own, anybody))
    assert [quota.left for quota in quotas_of(session_of(requester, AGENT))] == [2]
    assert [quota.left for quota in quotas_of(session_of(requester, "new@example.org"))] == [60]
    assert [quota.left for quota in quotas_of(session_of(requester))] == [0]


def test_a_runner_that_is_gone_has_nothing_left_to_give(requester, host):
    host.beat(quotas=(QuotaUse(principal="unsigned", per_hour=10, left=7),))
    requester.clock.sleep(24 * 3600)
    assert quotas_of(session_of(requester)) == []


def test_a_request_that_waits_for_its_share_says_so_until_the_next_one_is_due(requester, host):
    host.beat()
    sent = requester.run("run", "mlx-env-probe").out.strip()
    host.beat(quotas=(QuotaUse(principal="unsigned", per_hour=3, left=0, next=NEXT),))
    spent = f"unsigned requests have used up the 3 an hour that mini takes; the next from {NEXT}"
    assert used_up(session_of(requester), *PROBE) == spent
    shown = " ".join(requester.run("status", sent).out.split())
    assert "used up the 3 an hour that mini takes" in shown
    requester.clock.sleep(40 * 60)
    host.beat(quotas=(QuotaUse(principal="unsigned", per_hour=3, left=0, next=NEXT),))
    assert used_up(session_of(requester), *PROBE) is None


def test_a_share_is_not_used_up_while_another_runner_that_takes_the_request_bounds_nobody(requester, host):
    second = ScriptedHost(requester.bus, requester.clock, name="studio")
    host.beat(quotas=(QuotaUse(principal="unsigned", per_hour=3, left=0, next=NEXT),))
    assert used_up(session_of(requester), *PROBE) is not None
    second.beat()
    assert used_up(session_of(requester), *PROBE) is None
    assert "mini takes" in used_up(session_of(requester), PROBE[0], RunnerSelector(name="mini"))
    assert used_up(session_of(requester), PROBE[0], RunnerSelector(name="nobody")) is None
