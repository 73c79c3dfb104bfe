"""A signed request means exactly what was signed, here, once: whatever else is pushed runs nothing."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge import strictjson
from bridge.bus.commits import CANCEL_FILE, REQUEST_FILE, SIGNATURE, folder_commit
from bridge.errors import KakeyaError
from bridge.ids import new_id
from bridge.records import Request, Workload
from bridge.request import parse, request_branch
from bridge.request.branches import cancel_branch
from bridge.request.cancel import CancelRequest
from bridge.request.signature import sign
from bridge.runner.journal import read_lines
from bridge.runner.sender import Sender
from bridge.system.clock import SystemClock, rfc3339
from tests.fakes.asking import make_request
from tests.fakes.ssh_keys import WHO, push_signed, signed_request, signers_line, write_list
from tests.unit.bridge.runner.conftest import POLICY, clock, world

__all__ = ["clock", "world"]
OTHER = "other@example.org"
RAN = "gate_rejected"  # the fake program's report is no evidence; that it is judged shows that it ran
REFUSED = {"request_rejected", "policy_refused", "expired"}


@pytest.fixture
def lists(tmp_path: Path, keys) -> Path:
    tmp_path.chmod(0o700)
    write_list(tmp_path / "signers", signers_line(keys["agent"]), signers_line(keys["other"], OTHER))
    return tmp_path


def policy(lists: Path, *more: str) -> str:
    return POLICY + "\n".join((f'allowed_signers = "{lists}/signers"', f'revoked = "{lists}/revoked"', *more, ""))


@pytest.fixture
def host(world, lists):
    def make(*more: str, **changes):
        return world(policy_text=policy(lists, *more), **changes)

    return make


def push_anything(w, ref: str, run_id: str, data: bytes, signature: bytes | None) -> None:
    """Push what anybody with git can, over whatever was there."""
    files = {REQUEST_FILE: data} if signature is None else {REQUEST_FILE: data, REQUEST_FILE + SIGNATURE: signature}
    top, objects = folder_commit(files, over=(), parents=(), time_unix_s=1_700_000_000, message=os.urandom(4).hex())
    with w.remote.lock:
        w.remote.objects.update({one.oid: one for one in objects})
        w.remote.refs[ref] = top.oid


def serve(w, times: int) -> None:
    """One run at a time, as the policy has one slot."""
    runner = w.runner()
    for _ in range(times):
        w.serve_once(runner)


def ended(w, run_id: str) -> str:
    claim = w.claim(run_id)
    assert claim.state == "terminal"
    return claim.reason


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
    assert "process" not in {line.event for line in read_lines(w.host.state.journal)}


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
            found = parse(changed, ref=request.ref, bus_id=bus_id, now=w.clock.now())
        except KakeyaError:
            continue
        still_requests += 1
        with pytest.raises(KakeyaError):
            w.host.signers.request(found, changed, signature)
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
        run_id = new_id(1_800_000_000_000, os.urandom(10))
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
    w.host.journal.close()
    w.serve_once(w.runner(w.new_host()))  # a fresh process of the same runner
    assert ended(w, request.id) == "request_rejected"
    assert "a request runs once" in (w.claim(request.id).message or "")
    assert len(w.executor.executed) == 1


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("{who} namespaces=\"git\" {key}\n", "not accepted"),
        ("{who} namespaces=\"kakeya-request-v1\",valid-before=\"20200101\" {key}\n", "not accepted"),
        ("{who} namespaces=\"kakeya-request-v1\",valid-after=\"29990101\" {key}\n", "not accepted"),
        ("{who} namespaces=\"kakeya-request-v1\" {other}\n", "not accepted"),
        ("somebody@example.org namespaces=\"kakeya-request-v1\" {key}\n", "not accepted"),
        ("", "knows no signers"),
    ],
    ids=["another namespace", "expired", "not yet valid", "swapped key", "another principal", "empty"],
)  # fmt: skip
def test_the_owners_list_decides_and_the_refusal_names_one_command(host, keys, lists, listed, why):
    key, other = keys["agent"], keys["other"]
    write_list(lists / "signers", listed.format(who=WHO, key=key.public, other=other.public))
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", key)
    push_signed(w.requester, request, signature)
    w.serve_once()
    assert ended(w, request.id) == "policy_refused"
    message = w.claim(request.id).message or ""
    assert why in message
    assert f"kakeya-runner trust add '{key.public}' --principal {WHO}" in message
    assert w.executor.executed == []
    assert w.record(request.id).principal == "unsigned"


def test_a_signature_made_for_git_or_by_another_listed_key_is_refused(host, keys):
    import subprocess

    w = host()
    request, _ = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(keys["agent"].path)]
    for_git = subprocess.run(argv, input=request.canonical(), capture_output=True, check=True, timeout=30).stdout
    push_anything(w, request.ref, request.id, request.canonical(), for_git)
    second, _ = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    by_other = sign(second.canonical(), keys["other"].path)
    push_anything(w, second.ref, second.id, second.canonical(), by_other)
    serve(w, 2)
    assert {ended(w, request.id), ended(w, second.id)} == {"policy_refused"}
    assert w.executor.executed == []


@pytest.mark.parametrize("who", ["principal", "fingerprint", "key"])
def test_a_revoked_principal_or_key_is_refused(host, keys, lists, who):
    gone = {"principal": WHO, "fingerprint": keys["agent"].fingerprint, "key": keys["agent"].public}[who]
    write_list(lists / "revoked", f"{gone}\n")
    w = host()
    bus_id = w.requester.identity().bus_id
    request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"])
    fine, fine_signature = signed_request(bus_id, "mlx-env-probe", keys["other"], OTHER)
    push_signed(w.requester, request, signature)
    push_signed(w.requester, fine, fine_signature)
    serve(w, 2)
    assert ended(w, request.id) == "policy_refused"
    assert "has revoked" in (w.claim(request.id).message or "")
    assert ended(w, fine.id) == RAN


@pytest.mark.parametrize("name", ["signers", "revoked"])
def test_a_list_that_others_could_write_makes_nobody_trusted(host, keys, lists, name):
    write_list(lists / "revoked", "")
    (lists / name).chmod(0o666)
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    w.serve_once()
    assert ended(w, request.id) == "policy_refused"
    assert "chmod 600" in (w.claim(request.id).message or "")
    assert w.executor.executed == []


CODE = Workload(commit="a" * 40, tree="b" * 40, origin="", dirty=False)


def test_unsigned_requests_run_host_code_only_and_the_owner_may_refuse_them_altogether(host, world, lists):
    w = host()
    plain = w.ask("mlx-env-probe")
    w.serve_once()
    assert ended(w, plain.id) == RAN
    assert w.record(plain.id).signer is None
    w.host.journal.close()
    strict = world(policy_text=policy(lists, "require_signature = true"))
    plain = strict.ask("mlx-env-probe")
    strict.serve_once()
    assert ended(strict, plain.id) == "policy_refused"
    assert "signed requests only" in (strict.claim(plain.id).message or "")
    assert strict.executor.executed == []


def test_quotas_are_per_principal_and_forged_names_use_up_the_unsigned_share(host, keys):
    w = host("quota_per_hour = 1", '[quotas]\n"other@example.org" = 2')
    bus_id = w.requester.identity().bus_id
    asked = [("agent", WHO), ("agent", WHO), ("other", OTHER), ("other", OTHER), ("other", OTHER)]
    sent = []
    for name, who in asked:
        request, signature = signed_request(bus_id, "mlx-env-probe", keys[name], who)
        sent.append((who, push_signed(w.requester, request, signature)))
    serve(w, len(asked))
    took = [who for who, ref in sent if ref.id in w.requester.snapshot().claims]
    assert sorted(took) == [WHO, OTHER, OTHER]
    assert any("requests of agent@example.org in the last hour" in line for line in w.said)
    w.host.journal.close()
    again = w.runner(w.new_host())  # counted by the journal, hence also by the next process
    w.serve_once(again)
    assert len(w.executor.executed) == 3


def test_trusting_pushers_is_in_every_result_also_in_a_refused_one(host, world, lists, keys):
    w = host("trust_pushers = true")
    bus_id = w.requester.identity().bus_id
    plain, planned = w.ask("mlx-env-probe"), w.ask("cuda-env-probe", params={"unknown": 1})
    request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    serve(w, 3)
    assert "trust_pushers" in w.record(plain.id).labels
    assert "trust_pushers" in w.record(planned.id).labels
    assert ended(w, planned.id) == "request_rejected"
    assert "trust\\_pushers" in w.result(planned.id).files["summary.md"].decode()
    assert "trust_pushers" not in w.record(request.id).labels


def cancel_of(w, run_id: str, keys, name: str | None, who: str) -> tuple[bytes, bytes | None]:
    key = None if name is None else keys[name]
    cancel = CancelRequest(
        id=run_id, bus_id=w.requester.identity().bus_id, principal=who,
        signer=None if key is None else key.fingerprint, time=rfc3339(w.clock.now()),
    )  # fmt: skip
    data = cancel.canonical()
    return data, None if key is None else sign(data, key.path)


@pytest.mark.parametrize(
    ("name", "who", "counts"),
    [(None, "unsigned", False), ("other", OTHER, False), ("other", WHO, False), ("agent", WHO, True)],
    ids=["unsigned", "another principal", "a forged name", "its own principal"],
)
def test_a_cancel_of_a_signed_run_counts_only_for_its_principal(host, keys, name, who, counts):
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    w.requester.ask_cancel(request.id, *cancel_of(w, request.id, keys, name, who))
    w.serve_once()
    assert ended(w, request.id) == ("cancelled" if counts else RAN)
    assert any("a cancel does not count" in line for line in w.said) is not counts


def test_a_bad_cancel_does_not_stand_in_the_way_of_a_good_one(host, keys):
    w = host('owners = ["other@example.org"]')
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    w.requester.ask_cancel(request.id, b"{}")
    w.requester.ask_cancel(request.id, *cancel_of(w, request.id, keys, "other", OTHER))
    w.serve_once()
    assert ended(w, request.id) == "cancelled"


@pytest.mark.parametrize("side", ["0", "z"], ids=["before", "behind"])
def test_forged_cancels_do_not_crowd_out_the_one_that_counts(host, keys, clock, side):
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    ref = push_signed(w.requester, request, signature)
    forged, own = cancel_of(w, request.id, keys, "other", WHO), cancel_of(w, request.id, keys, "agent", WHO)
    for number in range(40):
        push_cancel(w, cancel_branch(ref.ref, f"{side * 12}{number:02}"), *forged)
    host_ = dataclasses.replace(w.host, clock=Ahead())
    sender = Sender(host_, w.runner(host_)._link, ref)
    sender.let_in(request, request.canonical(), signature, "c" * 40)
    assert not any(sender.may_be_cancelled() for _ in range(5))  # each look is later than the one before
    w.requester.ask_cancel(request.id, *own)
    assert sender.may_be_cancelled()  # those that did not count before are not looked at again
    fresh = Sender(host_, w.runner(host_)._link, ref)
    fresh._signer = sender.signer
    assert any(fresh.may_be_cancelled() for _ in range(5))


class Ahead(SystemClock):
    """A clock whose every answer is a minute later than the last."""

    asked = 0

    def steady_s(self) -> float:
        self.asked += 1
        return super().steady_s() + 60.0 * self.asked


def push_cancel(w, ref: str, data: bytes, signature: bytes | None) -> None:
    files = {CANCEL_FILE: data, CANCEL_FILE + SIGNATURE: signature or b""}
    top, objects = folder_commit(files, over=(), parents=(), time_unix_s=1_700_000_000, message=os.urandom(4).hex())
    with w.remote.lock:
        w.remote.objects.update({one.oid: one for one in objects})
        w.remote.refs[ref] = top.oid


def test_anybody_may_cancel_an_unsigned_run(host, keys):
    w = host()
    plain = w.ask("mlx-env-probe")
    w.requester.ask_cancel(plain.id, *cancel_of(w, plain.id, keys, None, "unsigned"))
    w.serve_once()
    assert ended(w, plain.id) == "cancelled"
