"""Requests as anybody with git can push them, a policy that knows two signers, and how a run ended."""

from __future__ import annotations

import os
from pathlib import Path

from bridge.bus.content.commits import REQUEST_FILE, SIGNATURE, folder_commit
from tests.support.runner_world import POLICY

OTHER = "other@example.org"
RAN = "gate_rejected"  # the fake program's report is no evidence; that it is judged shows that it ran
REFUSED = {"request_rejected", "policy_refused", "expired"}


def policy(lists: Path, *more: str) -> str:
    return POLICY + "\n".join((f'allowed_signers = "{lists}/signers"', f'revoked = "{lists}/revoked"', *more, ""))


def push_anything(w, ref: str, run_id: str, data: bytes, signature: bytes | None) -> None:
    """Push what anybody with git can, over whatever was there."""
    files = {REQUEST_FILE: data} if signature is None else {REQUEST_FILE: data, REQUEST_FILE + SIGNATURE: signature}
    top, objects = folder_commit(files, over=(), parents=(), time_unix_s=1_700_000_000, message=os.urandom(4).hex())
    with w.remote.lock:
        w.remote.objects.update({obj.oid: obj for obj in objects})
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
