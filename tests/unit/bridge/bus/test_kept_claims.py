"""A claim is a runner's own only when the remote keeps it, and is read whatever the remote lost beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.bus.refs.names import DEFAULT_PREFIX, claim_ref, log_ref, start_ref
from bridge.bus.store.interface import MissingObjectError
from bridge.errors import FencedError
from bridge.trust.judgement import KeyAuthority, NamedKey
from bridge.trust.key_seals import KeySeals
from bridge.trust.signing_key import make_key
from tests.fakes.bus_actors import Actor, FakeClock, chunk
from tests.fakes.memory_bus import Faults, MemoryBus, MemoryRemote, bus_record


def test_a_claim_that_the_remote_acknowledged_and_did_not_keep_is_nobodys() -> None:
    clock, remote, faults = FakeClock(), MemoryRemote(), Faults()
    MemoryBus(remote, clock=clock).create(bus_record(clock))
    runner = Actor(MemoryBus(remote, clock=clock, faults=faults), clock, "a")
    runner.submit()
    (ref,) = runner.bus.snapshot().requests
    faults.decide = lambda operation: "forgotten" if operation == "push" else None
    with pytest.raises(FencedError, match="already claimed"):
        runner.claim(ref)
    faults.decide = lambda operation: None
    assert runner.claim(ref).claim.runner == "a"


def test_what_the_remote_lost_at_the_ref_of_a_log_costs_nobody_the_claim() -> None:
    clock, remote = FakeClock(), MemoryRemote()
    MemoryBus(remote, clock=clock).create(bus_record(clock))
    runner = Actor(MemoryBus(remote, clock=clock), clock, "a")
    sent = runner.submit()
    runner.start(sent.ref, runner.claim(sent.ref))
    operations: list[str] = []
    client = MemoryBus(remote, clock=clock, faults=Faults(operations.append))
    remote.refs[log_ref(DEFAULT_PREFIX, sent.ref.id)] = "1" * 40
    assert client.view(sent.ref.id, with_log=True).claim is not None
    with pytest.raises(MissingObjectError):
        client.read_log(sent.ref.id)
    fetches = operations.count("fetch")
    assert client.view(sent.ref.id, with_log=True).claim is not None
    assert operations.count("fetch") == fetches  # what is not given now is left alone for a while


def test_a_run_is_seen_and_read_in_one_call_each_time() -> None:
    clock, remote, operations = FakeClock(), MemoryRemote(), list[str]()
    MemoryBus(remote, clock=clock).create(bus_record(clock))
    runner = Actor(MemoryBus(remote, clock=clock), clock, "a")
    client = MemoryBus(remote, clock=clock, faults=Faults(operations.append))
    sent = runner.submit()
    client.identity()
    client.remember(sent.ref.id, sent.ref.ref)
    held_claim = runner.start(sent.ref, runner.claim(sent.ref))
    operations.clear()
    assert client.view(sent.ref.id, with_log=True).claim is not None
    assert operations == ["list"]
    for seq in range(2):
        operations.clear()
        held_claim = runner.renew(sent.ref, held_claim, log=chunk(sent.ref.id, seq, seq, b"x"))
        view = client.view(sent.ref.id, with_log=True)
        assert len(client.read_log(sent.ref.id, tip=view.log)) == seq + 1
    assert operations == ["list"]


def test_a_log_that_nobody_signed_neither_keeps_a_runner_that_signs_from_a_run_nor_begins_its_log(
    tmp_path: Path,
) -> None:
    clock, remote = FakeClock(), MemoryRemote()
    MemoryBus(remote, clock=clock).create(bus_record(clock))
    key = make_key(tmp_path / "key")
    authority = KeyAuthority((NamedKey("mini", key.public),))
    bus = MemoryBus(remote, clock=clock)
    bus.use_seals(KeySeals(lambda: authority, name="mini", key=key))
    runner, stranger = Actor(bus, clock, "mini"), Actor(MemoryBus(remote, clock=clock), clock, "mini")
    ref = stranger.submit().ref
    forged = stranger.start(ref, stranger.claim(ref))
    stranger.renew(ref, forged, log=chunk(ref.id, 0, 0, b"all passed\n"))
    del remote.refs[claim_ref(DEFAULT_PREFIX, ref.id)], remote.refs[start_ref(DEFAULT_PREFIX, ref.id)]

    started = runner.start(ref, runner.claim(ref))
    assert runner.bus.resume_log(ref.id) is None
    renewed = runner.renew(ref, started, log=chunk(ref.id, 0, 0, b"one test failed\n"))
    runner.renew(ref, renewed)  # the first push learnt where the ref is
    reader = MemoryBus(remote, clock=clock)
    reader.use_seals(KeySeals(lambda: authority))
    assert [log_chunk.data for log_chunk in reader.read_log(ref.id)] == [b"one test failed\n"]
    assert reader.log_signature(ref.id).word == "verified"
