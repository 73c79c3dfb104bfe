"""Whatever is pushed as a request: one clear line, a published result, and nothing executed."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import strictjson
from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store.gather import WorkBudget
from bridge.records.request import RunnerSelector
from bridge.runner.state.journal import read_lines
from bridge.system.gitobjects import TreeEntry, blob, commit, tree
from bridge.trust.judgement import KeyAuthority, NamedKey
from bridge.trust.key_seals import KeySeals
from tests.fakes.asking import push_bytes
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryBus

DAY_S = 24 * 3600.0


def canonical(**changes):
    def change(document):
        return strictjson.encode({**document, **changes})

    return change


HOSTILE = {
    "empty": lambda d: b"",
    "not JSON": lambda d: b"preset: mlx-env-probe",
    "schema 1 of the seed": lambda d: b'{"schema_version":1,"preset":"mlx-env-probe","nonce":"abcd"}',
    "newer schema": canonical(schema_version=3),
    "boolean version": canonical(schema_version=True),
    "unknown key": canonical(shell="rm -rf /"),
    "missing key": lambda d: strictjson.encode({k: v for k, v in d.items() if k != "expires"}),
    "duplicate key": lambda d: strictjson.encode(d)[:-1] + b',"preset":"pytest-path"}',
    "NaN": lambda d: strictjson.encode({**d, "params": {"depth": 1}}).replace(b'"depth":1', b'"depth":NaN'),
    "deep": lambda d: b"[" * 10_000,
    "not canonical": lambda d: json.dumps(d).encode(),
    "trailing newline": lambda d: strictjson.encode(d) + b"\n",
    "another run's id": canonical(id="01k9x3m2q7r8s9t0v1w2x3y4z5"),
    "another bus": canonical(bus_id="f" * 32),
    "another branch": canonical(ref="refs/heads/main"),
    "wrong idempotency key": canonical(idempotency_key="f" * 64),
    "claims a principal": canonical(principal="owner@example.org"),
    "claims a signer": canonical(signer="SHA256:abc"),
    "is signed, says the request": canonical(principal="owner@example.org", signer="SHA256:" + "A" * 43),
    "control characters": canonical(preset="mlx-env-probe\n"),
    "option as preset": canonical(preset="--help"),
    "path as preset": canonical(preset="../../etc/passwd"),
    "number as text": canonical(params={"depth": "1_0"}),
    "from the future": canonical(created="2999-01-01T00:00:00.000Z", expires="2999-01-01T01:00:00.000Z"),
    "valid for ever": canonical(expires="2999-01-01T00:00:00.000Z"),
    "local time": canonical(created="2026-11-20T10:00:00+02:00"),
    "environment": canonical(params={"BASH_ENV": "/tmp/x"}),
    "argv": canonical(params={"argv": "rm"}),
    "not UTF-8": lambda d: strictjson.encode(d).replace(b"smoke", b"\xff\xfe\xfd\xfc\xfb"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_tampered_manifest_publishes_a_result_and_starts_nothing(world, name):
    w = world()
    request = w.request()
    data = HOSTILE[name](request.model_dump(mode="json"))
    ref = push_bytes(w.remote, request, data)
    w.serve_once()
    claim = w.claim(ref.id)
    assert (claim.reason, claim.exit_code) == ("request_rejected", 2)
    assert claim.message
    assert "\n" not in claim.message
    assert w.executor.executed == []
    tree = w.result(ref.id)
    assert tree.files["request.json"] == data
    assert w.verdict(ref.id).decision == "rejected"
    assert "started" not in {line.event for line in read_lines(w.process.folder.database)}


def test_a_request_larger_than_its_bound_is_rejected_unread(world):
    w = world()
    request = w.request()
    ref = push_bytes(w.remote, request, b'{"a":"' + b"x" * 70_000 + b'"}')
    w.serve_once()
    assert w.claim(ref.id).reason == "request_rejected"
    assert w.executor.executed == []
    assert "request.json" not in w.result(ref.id).files


def test_any_mutation_of_a_request_runs_nothing_but_what_it_says(world):
    w = world()
    runner = w.runner()

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def mutate(data):
        request = w.request()
        original = request.canonical()
        at = data.draw(st.integers(min_value=0, max_value=len(original) - 1))
        by = data.draw(st.binary(min_size=0, max_size=4))
        mutated = original[:at] + by + original[at + len(by) :] if by else original[:at] + original[at + 1 :]
        executed = len(w.executor.executed)
        ref = push_bytes(w.remote, request, mutated)
        w.serve_once(runner)
        claim = w.claim(ref.id)
        assert claim.state == "terminal"
        ran = [spec.preset for spec in w.executor.executed[executed:]]
        if claim.reason == "request_rejected":
            assert ran == []
        else:  # what is still valid differs in a time or in nothing at all
            assert ran in ([], ["mlx-env-probe"])
            assert mutated[: original.index(b'"created"')] == original[: original.index(b'"created"')]

    mutate()


def test_a_branch_with_the_id_of_a_request_for_another_runner_does_not_end_that_request(world):
    w = world()
    request = w.request(runner=RunnerSelector(name="another"))
    push_bytes(w.remote, request, request.canonical())
    push_bytes(w.remote, w.request("pytest-path", id=request.id), b"no request")
    runner = w.runner()
    assert [runner.step() for _ in range(3)] == [0, 0, 0]
    assert w.requester.read_claim(request.id) is None


@pytest.mark.parametrize("pushed", ["the same commit", "no request"])
def test_a_branch_with_the_id_of_an_archived_run_does_not_hide_its_result(world, pushed):
    w = world()
    then = FakeClock(w.clock.now() - dt.timedelta(days=5))
    host = Actor(MemoryBus(w.remote, clock=then), then, "other")
    ran, never = host.request(), host.submit().ref
    sent = host.submit(ran).ref
    host.run(sent)
    then.advance(4 * DAY_S)
    assert sent.ref in set(host.bus.archive(host.name, budget=WorkBudget(100), drop_after_s=2 * DAY_S))
    push_bytes(w.remote, ran, b"no request")
    if pushed == "the same commit":
        w.remote.refs[sent.ref] = sent.oid
    runner, listed = w.runner(), []
    for _ in range(3):
        operations = []
        w.faults.decide = operations.append
        assert runner.step(sent.ref) == 0
        runner.join()
        listed.append(operations.count("list"))
    view = w.requester.view(sent.id)
    assert (view.claim.claim.runner, view.claim.claim.reason) == ("other", "passed")
    assert listed[1:] == [1, 1]  # the archives are looked into once
    runner.step(never.ref)
    runner.join()
    assert w.claim(never.id).reason == "expired"  # what nobody ran is told so, however old it is


def test_a_request_whose_folder_is_a_link_is_refused_with_that_reason_and_its_branch_once(world):
    w = world()
    target = blob(b"elsewhere")
    top = tree([TreeEntry("120000", b".mac-bridge", target.oid)])
    request = w.request()
    head = commit(top.oid, (), 1_700_000_000, "anything")
    with w.remote.lock:
        w.remote.objects.update({made.oid: made for made in (target, top, head)})
        w.remote.refs[request.ref] = head.oid
    w.serve_once()
    message = w.claim(request.id).message
    assert "its .mac-bridge is a link or a file, not a folder" in message
    assert message.count(request.ref) <= 1


@pytest.mark.parametrize("time", ["0001-01-01Z", "2026-01-01Z"])
def test_a_stranger_s_sign_of_life_that_names_a_day_alone_stops_nobody(world, time):
    w = world()
    stranger = Actor(w.requester, w.clock, "stranger").beacon(1).model_dump(mode="json")
    top, objects = commits.file_tree({commits.BEACON_FILE: strictjson.encode({**stranger, "time": time})})
    head = commit(top.oid, (), 1_700_000_000, "beacon stranger")
    with w.remote.lock:
        w.remote.objects.update({made.oid: made for made in (*objects, head)})
        w.remote.refs[names.beacon_ref(names.DEFAULT_PREFIX, "stranger")] = head.oid
    ref = w.ask()
    w.serve_once()
    assert w.claim(ref.id).state == "terminal"
    reader = MemoryBus(w.remote, clock=w.clock)
    reader.use_seals(KeySeals(lambda: KeyAuthority((NamedKey("mini", "A" * 43 + "="),))))
    assert reader.read_beacons() == ()
