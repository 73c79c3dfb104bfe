"""A preset that only the host knows can be sent while a live beacon lists it; the host checks the parameters."""

from __future__ import annotations

import datetime as dt

import pytest

from bridge.client.send.parameters import untyped
from bridge.errors import ParameterError
from bridge.records.request import Request
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import PRESETS, ScriptedHost


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


@pytest.fixture
def host(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat(presets=(*PRESETS, "owners-own"))
    return host


def test_it_is_sent_with_what_the_parameters_look_like_and_says_who_checks_them(requester, host):
    words = ("-p", "n=12", "-p", "share=0.5", "-p", "fast=true", "-p", "name=tiny", "-p", 'id="12"')
    ran = requester.run("run", "owners-own", *words, "--json")
    assert ran.code == 0, ran.err
    assert "runner mini offers it and checks the parameters" in ran.err
    request = Request.parse(requester.bus.read_request(host.ref(ran.document["id"])).data)
    assert (request.preset, request.workload) == ("owners-own", None)
    assert dict(request.params) == {"n": 12, "share": 0.5, "fast": True, "name": "tiny", "id": "12"}
    again = requester.run("run", "owners-own", *words, "--json").document
    assert (again["id"], again["request"]["reattached"]) == (ran.document["id"], True)


def test_without_a_live_beacon_that_lists_it_it_stays_unknown_and_the_message_names_what_there_is(requester, host):
    ran = requester.run("run", "another")
    assert ran.code == 2
    assert "unknown preset 'another'" in ran.err
    assert "owners-own" in ran.err
    assert "no runner has shown itself" not in ran.err
    requester.clock.sleep(3600)
    ran = requester.run("run", "owners-own")
    assert ran.code == 2
    assert "no runner has shown itself yet, and one that was just started soon does" in " ".join(ran.err.split())


def test_where_every_runner_seems_to_be_silent_for_long_the_own_clock_is_named(requester, host):
    requester.clock.at += dt.timedelta(hours=36)  # its clock is ahead; the runner serves
    ran = requester.run("run", "mlx-env-probe")
    assert ran.code == 3
    assert "last seen 36h ago" in ran.err
    assert "compare clocks: this machine says 2026-11-21 22:00 UTC" in " ".join(ran.err.split())


def test_with_queue_the_last_word_of_a_host_that_is_away_counts(requester, host):
    requester.clock.sleep(3 * 3600)
    ran = requester.run("run", "owners-own", "-p", "n=12", "--queue", "--json")
    assert ran.code == 0, ran.err
    assert "runner mini offered it 3h ago and checks the parameters" in ran.err
    assert requester.run("run", "another", "--queue").code == 2


def test_a_text_that_no_request_may_hold_is_refused_here(requester, host):
    ran = requester.run("run", "owners-own", "-p", "a=x\x1b[31m")
    assert ran.code == 2
    with pytest.raises(ParameterError):
        untyped({"a": "x" * 5000})


def test_expiry_bounds_hold_for_it_too(requester, host):
    assert requester.run("run", "owners-own", "--expires", "0").code == 2
