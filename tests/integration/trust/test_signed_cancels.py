"""A cancel counts only for who may cancel: forged and broken ones neither stop a run nor stand in the way."""

from __future__ import annotations

import os

import pytest

from bridge.bus.content.commits import CANCEL_FILE, SIGNATURE, folder_commit
from bridge.request.branches import cancel_branch
from bridge.request.cancel import CancelRequest
from bridge.runner.run.sender import Sender
from bridge.system.clock import SystemClock, rfc3339
from bridge.trust.ssh_signatures import sign
from tests.fakes.ssh_keys import WHO, push_signed, signed_request
from tests.integration.trust.asking import OTHER, RAN, ended


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
    assert any("a cancel does not count" in line for line in w.log_lines) is not counts


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

    def fresh_sender():
        process, link = w.process, w.runner()._link
        return Sender(process.rules, process.state.ledger, link, ref, clock=Ahead(), log=process.log)

    sender = fresh_sender()
    sender.let_in(request, request.canonical(), signature, "c" * 40)
    assert not any(sender.may_be_cancelled() for _ in range(5))  # each look is later than the one before
    w.requester.ask_cancel(request.id, *own)
    assert sender.may_be_cancelled()  # those that did not count before are not looked at again
    fresh = fresh_sender()
    fresh._signer = sender.signer
    assert any(fresh.may_be_cancelled() for _ in range(5))


class Ahead(SystemClock):
    """A clock whose every answer is a minute later than the last."""

    readings = 0

    def steady_s(self) -> float:
        self.readings += 1
        return super().steady_s() + 60.0 * self.readings


def push_cancel(w, ref: str, data: bytes, signature: bytes | None) -> None:
    files = {CANCEL_FILE: data, CANCEL_FILE + SIGNATURE: signature or b""}
    top, objects = folder_commit(files, over=(), parents=(), time_unix_s=1_700_000_000, message=os.urandom(4).hex())
    with w.remote.lock:
        w.remote.objects.update({obj.oid: obj for obj in objects})
        w.remote.refs[ref] = top.oid


def test_anybody_may_cancel_an_unsigned_run(host, keys):
    w = host()
    plain = w.ask("mlx-env-probe")
    w.requester.ask_cancel(plain.id, *cancel_of(w, plain.id, keys, None, "unsigned"))
    w.serve_once()
    assert ended(w, plain.id) == "cancelled"
