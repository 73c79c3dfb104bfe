"""Whose code a request brings: trusted when the host's owner vouches for its commit, untrusted otherwise.

A commit is vouched for by its place (on the first-parent chain of a protected ref, after the floor commit) or by a
code signer's signature over it. What runs is a tree, so the commit counts only when it has exactly that tree. Reads
raw commits; no git decides here, so no replace ref, graft, shallow list or configuration of a repository can.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from bridge.bus.refs.history import History
from bridge.bus.views import RequestRef
from bridge.errors import BusError, PolicyRefusedError
from bridge.records.request import Workload
from bridge.runner.authorisation.signers import Signers
from bridge.runner.policy.model import Policy

_SIGNATURE = re.compile(rb"^gpgsig (.*\n(?: .*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class CodeTrust:
    """The class of a request's code, and why."""

    trust_class: Literal["trusted", "untrusted"]
    why: str


def judge_code(policy: Policy, signers: Signers, history: History, ref: RequestRef, workload: Workload) -> CodeTrust:
    """Return what the owner's rules say of a request's code; whatever cannot be established is untrusted.

    Raises:
        RemoteError: the bus did not answer.
    """
    commit = workload.commit
    short = commit[:12]
    if not policy.protected_refs and not policy.code_signers:
        return CodeTrust("untrusted", "this host names no protected ref and no code signer")
    try:
        found = history.workload_commit(ref, commit)
    except BusError as error:
        return CodeTrust("untrusted", f"commit {short} cannot be read: {error.message}")
    if found.tree != workload.tree:
        return CodeTrust("untrusted", f"the code differs from its commit {short}")
    misses = []
    for protected in policy.protected_refs:
        miss = _off_chain(history, protected, commit, policy.floor_commit or "")
        if miss is None:
            return CodeTrust("trusted", f"commit {short} is on {protected} after {(policy.floor_commit or '')[:12]}")
        misses.append(miss)
    try:
        signer = signers.commit(*split_signature(found.raw))
    except PolicyRefusedError as error:
        why = "; ".join((*misses, f"commit {short}: {error.message}"))
        return CodeTrust("untrusted", why)
    return CodeTrust("trusted", f"commit {short} is signed by code signer {signer.principal}, {signer.fingerprint}")


def judge_base(policy: Policy, signers: Signers, history: History, ref: RequestRef, commit: str) -> CodeTrust:
    """Return what the owner's rules say of the commit a request is compared with: its code runs too.

    Raises:
        RemoteError: the bus did not answer.
    """
    try:
        found = history.workload_commit(ref, commit)
    except BusError as error:
        return CodeTrust("untrusted", f"base commit {commit[:12]} cannot be read: {error.message}")
    judged = judge_code(policy, signers, history, ref, Workload(commit=commit, tree=found.tree, origin="", dirty=False))
    return CodeTrust(judged.trust_class, f"base: {judged.why}")


def split_signature(raw: bytes) -> tuple[bytes, bytes]:
    """Return the signed part of a raw commit and its signature, empty when it has none.

    Only the first signature header counts, as for git; a second one stays in what is signed and breaks the signature.
    """
    head, blank, message = raw.partition(b"\n\n")
    match = _SIGNATURE.search(head + b"\n")
    if match is None:
        return raw, b""
    unsigned = (head + b"\n")[: match.start()] + (head + b"\n")[match.end() :]
    return unsigned.removesuffix(b"\n") + blank + message, match[1].replace(b"\n ", b"\n")


def _off_chain(history: History, protected: str, commit: str, floor: str) -> str | None:
    """Return why a commit is not after the floor on a ref's first-parent chain, None when it is.

    The chain is walked down to the floor: a ref that no longer leads there was rewritten, and vouches for nothing.
    """
    passed = False
    try:
        for at in history.first_parents(protected):
            if at == floor:
                return None if passed else f"it is not on {protected} after the floor commit {floor[:12]}"
            passed = passed or at == commit
    except BusError as error:
        return f"{protected} cannot be followed to the floor commit: {error.message}"
    return f"{protected} does not lead to the floor commit {floor[:12]}"
