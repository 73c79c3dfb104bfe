"""A preset whose host code asks request code: two users or nothing, and no way to swap the sides."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from bridge.errors import PolicyRefusedError, UsageError
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.installed import load, registry
from bridge.presets.resolution import resolve
from bridge.records.request import Workload
from bridge.runner.policy.file import read_policy
from tests.fakes.asking import make_request

NOW = dt.datetime(2026, 11, 20, 10, 0, tzinfo=dt.UTC)
CODE = Workload(commit="a" * 40, tree="b" * 40, origin="", dirty=False)
FACTS = PolicyFacts(
    digest="0" * 64, interpreter="/opt/python", trust_pushers=True, sandbox_uid=501, sandbox_peer_uid=502
)
PRESET = registry()["k3-request-code"]
TEXT = """schema = 1
name = "x"
status = "ready"
description = "d"
code = "request"
[[commands]]
name = "a"
argv = ["${host_engine}", "eval", "peer"]
peer = ["${engine}", "eval", "answer"]
[[outputs]]
path = "r.json"
kind = "request_code"
"""


def ask(profile="smoke", facts=FACTS, trust=None):
    request = make_request("bus", "k3-request-code", now=NOW, workload=CODE, params={}, profile=profile)
    return resolve(request, PRESET, facts, trust or Trust())


@pytest.mark.parametrize("profile", ["smoke", "claim"])
def test_the_hosts_code_asks_and_the_requests_code_answers(profile):
    spec = ask(profile)
    *launches, last = spec.commands
    assert len(launches) == (1 if profile == "smoke" else 5)
    for command in launches:
        assert command.argv[:5] == ("/opt/python", "-I", "-m", "engine.cli", "eval")
        assert command.peer == ("/opt/python", "-s", "-m", "engine.cli", "eval", "answer", "--depth", "3")
    assert last.peer is None
    assert last.argv[1] == "-I"
    assert (spec.sandbox.mode, spec.sandbox.uid, spec.sandbox.peer_uid, spec.sandbox.devices) == (
        "required",
        501,
        502,
        (),
    )
    assert spec.trust_class == "untrusted"
    assert any("asked by the host's own code" in line for line in spec.decisions)


@pytest.mark.parametrize(
    "change",
    [{"sandbox_peer_uid": None}, {"sandbox_uid": None}, {"sandbox_peer_uid": 501}, {"sandbox_mode": "off"}],
)
@pytest.mark.parametrize("request_code", ["trusted", "untrusted"])
def test_a_host_that_cannot_keep_two_users_apart_refuses_whoever_vouches(change, request_code):
    trust = Trust(principal="who", signer="SHA256:key", sent_code=request_code)
    with pytest.raises(PolicyRefusedError, match="two users") as caught:
        ask(facts=replace(FACTS, **change), trust=trust)
    assert "sandbox.peer_uid" in str(caught.value.remedy)


def test_ones_own_machine_is_no_exception():
    with pytest.raises(PolicyRefusedError, match="two users"):
        ask(facts=PolicyFacts(digest="0" * 64, interpreter="/opt/python", embedded=True))


def test_other_presets_get_no_second_user():
    request = make_request("bus", "mlx-env-probe", now=NOW)
    assert resolve(request, registry()["mlx-env-probe"], FACTS, Trust()).sandbox.peer_uid is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('code = "request"', 'code = "host"', "a peer is request code"),
        ('argv = ["${host_engine}"', 'argv = ["${engine}"', "a peer is request code"),
        ('"answer"]', '"{more}"]', "argv uses"),
        ('"answer"]', '"a{b}"]', "mixes text and a placeholder"),
        ('peer = ["${engine}", "eval", "answer"]', "peer = []", "at least 1 item"),
    ],
)
def test_a_preset_that_turns_the_sides_around_is_none(old, new, words):
    assert load("x", TEXT.encode()).has_peer
    with pytest.raises(UsageError, match=words):
        load("x", TEXT.replace(old, new).encode())


@pytest.mark.parametrize("users", ["peer_uid = 502", "uid = 502\npeer_uid = 502", "uid = 501\npeer_uid = 0"])
def test_a_policy_names_two_ordinary_users(users):
    policy = 'schema = 1\nname = "n"\n[sandbox]\n'
    assert read_policy(f"{policy}uid = 501\npeer_uid = 502\n".encode()).facts(embedded=False).sandbox_peer_uid == 502
    with pytest.raises(UsageError):
        read_policy(f"{policy}{users}\n".encode())
