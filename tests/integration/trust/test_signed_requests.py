"""A signed request means exactly what was signed, here, once: whatever else is pushed runs nothing."""

from __future__ import annotations

import copy
import datetime as dt
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import strictjson
from bridge.errors import KakeyaError
from bridge.ids import new_id
from bridge.records.request import Request
from bridge.request import parse, request_branch
from bridge.runner.state.journal import read_lines
from bridge.system.clock import rfc3339
from tests.fakes.asking import make_request
from tests.fakes.ssh_keys import WHO, push_signed, signed_request
from tests.integration.trust.asking import OTHER, RAN, REFUSED, ended, push_anything, serve


def test_a_signed_request_runs_and_every_record_names_its_principal(host, keys):
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    ref = push_signed(w.requester, request, signature)
    w.serve_once()
    assert ended(w, ref.id) == RAN, w.claim(ref.id)
    record, verdict, tree = w.record(ref.id), w.verdict(ref.id), w.result(ref.id)
    assert (record.principal, record.signer) == (WHO, keys["agent"].fingerprint)
    assert (verdict.principal, verdict.signer, verdict.trust_class) == (WHO, keys["agent"].fingerprint, "host")
    assert tree.files["request.json.sig"] == signature
    assert WHO.replace("@", "@\u2060") in tree.files["summary.md"].decode()
    assert any(f"asked by {WHO}, signed by SHA256:" in line for line in w.executor.executed[0].decisions)


def changed_documents(document: dict) -> dict[str, dict]:
    """Every field of a request with another value that still has its shape, as a forger would write it."""
    value = {
        "preset": "cuda-env-probe", "profile": "claim", "principal": OTHER, "signer": "SHA256:" + "A" * 43,
        "params": {"n": 1}, "retry_of": "01k9x3m2q7r8s9t0v1w2x3y4z5", "runner": {"name": None, "labels": ["x"]},
        "limits": {"wall_s": 1.0, "log_bytes": None, "output_bytes": None}, "idempotency_key": "f" * 64,
        "bus_id": "f" * 32, "ref": "refs/heads/mac-bridge/mlx-env-probe-01k9x3m2q7r8s9t0v1w2x3y4z5",
        "id": "01k9x3m2q7r8s9t0v1w2x3y4z5", "schema_version": 1, "unknown": "field",
        "created": rfc3339(dt.datetime.fromisoformat(document["created"]) - dt.timedelta(seconds=1)),
        "expires": rfc3339(dt.datetime.fromisoformat(document["expires"]) + dt.timedelta(seconds=1)),
        "workload": {"commit": "a" * 40, "tree": "b" * 40, "origin": "", "dirty": False},
        "confirms": "01k9x3m2q7r8s9t0v1w2x3y4z5", "unsandboxed": True, "load": "drawn",
        "asks": "slower",
        "sweep": {"id": "01k9x3m2q7r8s9t0v1w2x3y4z5", "repeat": 1, "count": 2, "cells": 2},
    }  # fmt: skip
    assert set(value) - {"unknown"} == set(Request.model_fields)
    return {name: {**copy.deepcopy(document), name: changed} for name, changed in value.items()}


def rekeyed(document: dict) -> bytes:
    """Return canonical bytes, with the idempotency key that fits the changed fields where there is one."""
    from bridge.request import key_of

    try:
        request = Request.model_validate_json(strictjson.encode(document))
        return request.evolve(idempotency_key=key_of(request)).canonical()
    except ValueError:
        return strictjson.encode(document)


def test_any_changed_field_runs_nothing(host, keys):
    w = host()
    runner = w.runner()
    bus_id = w.requester.identity().bus_id
    names = sorted({*Request.model_fields, "unknown"})
    for name in names:
        request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"], now=w.clock.now())
        document = changed_documents(request.model_dump(mode="json"))[name]
        data = strictjson.encode(document) if name == "idempotency_key" else rekeyed(document)
        assert data != request.canonical(), name
        push_anything(w, request.ref, request.id, data, signature)
        w.serve_once(runner)
        if name == "runner":  # for somebody else, left to them
            assert request.id not in w.requester.snapshot().claims
            continue
        assert ended(w, request.id) in REFUSED, (name, w.claim(request.id))
    assert w.executor.executed == []
    assert "started" not in {line.event for line in read_lines(w.process.folder.database)}


def test_any_changed_byte_is_refused_by_shape_or_by_signature(host, keys):
    """Exhaustive over the bytes; what still is a request is held against the signature."""
    w = host()
    bus_id = w.requester.identity().bus_id
    request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"], now=w.clock.now())
    data = request.canonical()
    still_requests = 0
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            tampered = parse(changed, ref=request.ref, bus_id=bus_id, now=w.clock.now())
        except KakeyaError:
            continue
        still_requests += 1
        with pytest.raises(KakeyaError):
            w.process.rules.signers.request(tampered, changed, signature)
    assert still_requests > 0  # times, for one, stay times: there it is the signature that refuses


def test_any_change_of_a_signature_runs_nothing(host, keys):
    w = host()
    runner = w.runner()
    bus_id = w.requester.identity().bus_id

    @settings(max_examples=30, deadline=None)
    @given(at=st.integers(0, 400), bit=st.integers(0, 7), cut=st.booleans())
    def mutate(at: int, bit: int, *, cut: bool) -> None:
        request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"], now=w.clock.now())
        body = signature.index(b"\n") + 1
        place = body + at % (len(signature) - body - 40)
        changed = signature[:place] if cut else bytearray(signature)
        if isinstance(changed, bytearray):
            changed[place] ^= 1 << bit
        push_anything(w, request.ref, request.id, request.canonical(), bytes(changed))
        executed = len(w.executor.executed)
        w.serve_once(runner)
        assert ended(w, request.id) in REFUSED
        assert len(w.executor.executed) == executed

    mutate()


@pytest.mark.parametrize(("old", "new"), [(b"\n", b"\x0b"), (b"\n", b"\r\n"), (b"\n", b" \n")])
def test_a_signature_has_one_way_to_be_written(host, keys, old, new):
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    first, _, rest = signature.partition(b"\n")
    push_anything(w, request.ref, request.id, request.canonical(), first + b"\n" + rest.replace(old, new, 1))
    w.serve_once()
    assert ended(w, request.id) in REFUSED


def test_a_signature_missing_or_left_over_is_refused(host, keys):
    w = host()
    bus_id = w.requester.identity().bus_id
    request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"])
    push_anything(w, request.ref, request.id, request.canonical(), None)
    plain = make_request(bus_id, "mlx-env-probe")
    push_anything(w, plain.ref, plain.id, plain.canonical(), signature)
    serve(w, 2)
    for run_id in (request.id, plain.id):
        assert ended(w, run_id) == "request_rejected"
        assert "expected a name and a signature, or neither" in (w.claim(run_id).message or "")
        assert w.record(run_id).principal == "unsigned"
    assert w.executor.executed == []


@pytest.mark.parametrize("case", ["another ref", "another bus", "expired", "another runner"])
def test_a_replay_elsewhere_runs_nothing(host, keys, case, world, lists):
    w = host()
    bus_id = "f" * 32 if case == "another bus" else w.requester.identity().bus_id
    now = dt.datetime.now(dt.UTC) - (dt.timedelta(hours=3) if case == "expired" else dt.timedelta())
    more = {"runner": {"name": "somebody-else", "labels": ()}} if case == "another runner" else {}
    request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"], now=now, **more)
    ref, run_id = request.ref, request.id
    if case == "another ref":
        run_id = new_id(int(now.timestamp() * 1000), os.urandom(10))
        ref = request_branch("mac-bridge/{preset}-{id}", "mlx-env-probe", run_id)
    push_anything(w, ref, run_id, request.canonical(), signature)
    w.serve_once()
    if case == "another runner":
        assert run_id not in w.requester.snapshot().claims
    else:
        assert ended(w, run_id) in REFUSED
    assert w.executor.executed == []


def test_a_request_whose_refs_were_deleted_and_pushed_again_does_not_run_again(host, keys):
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    w.serve_once()
    assert ended(w, request.id) == RAN
    with w.remote.lock:  # somebody with enough rights deletes every trace
        for ref in [ref for ref in w.remote.refs if request.id in ref]:
            del w.remote.refs[ref]
    push_anything(w, request.ref, request.id, request.canonical(), signature)
    w.process.state.close()
    w.serve_once(w.runner(w.new_process()))  # a fresh process of the same runner
    assert ended(w, request.id) == "request_rejected"
    assert "a request runs once" in (w.claim(request.id).message or "")
    assert len(w.executor.executed) == 1
