"""Exit codes of `kakeya-mac`: what they mean, and which one a finished run ends in.

The table is data: help, guide and agent skill print it from here. Knows nothing about buses or files.
"""

from __future__ import annotations

from typing import Final, Literal

Required = Literal["valid", "evidence"]

MEANINGS: Final[dict[int, str]] = {
    0: "done: the result meets --require (smoke: valid, claim: evidence); a submission without --wait was pushed",
    1: "the gate's verdict is below --require; or verify, doctor or gate check found something",
    2: "usage: wrong command line or configuration, or the host rejected the request as malformed",
    3: "infrastructure: no runner, remote unreachable, expired, runner lost, interrupted, result not delivered",
    4: "the program failed",
    5: "a time limit or another bound ended the run",
    6: "cancelled",
    7: "refused by the policy of the host's owner",
    8: "still pending when the wait ended; nothing is lost: attach",
    9: "verify: every byte holds, and no pinned key says who wrote it: unsigned, or signed and no key is pinned",
    70: "a bug in kakeya-mac",
    130: "detached by Ctrl-C (SIGINT); the run goes on",
    143: "detached by SIGTERM; the run goes on",
}

PENDING: Final = 8
UNPROVEN: Final = 9
DETACHED: Final = {2: 130, 15: 143}

# Precedence, strongest first: a run that was refused never ran, so no later fact can matter.
OF_REASON: Final[dict[str, int]] = {
    "request_rejected": 2,
    "policy_refused": 7,
    "cancelled": 6,
    "timed_out": 5,
    "runner_lost": 3,
    "interrupted": 3,
    "expired": 3,
    "infrastructure": 3,
    "publish_failed": 3,
    "program_failed": 4,
    "gate_rejected": 1,
    "passed": 0,
}

# Running the same thing again may end differently, with no change by the requester.
RETRYABLE: Final = frozenset({"runner_lost", "interrupted", "expired", "infrastructure"})
# The same command again attaches to the same run: it goes on, or its result is still on its way.
UNFINISHED: Final = frozenset({"pending", "publish_failed"})

_RANK: Final = {"rejected": 0, "valid_not_citable": 1, "evidence": 2}
_NEEDED: Final = {"valid": 1, "evidence": 2}


def default_required(profile: str) -> Required:
    """Return what a run has to reach when nothing was required: smoke is a look, claim is for quoting."""
    return "evidence" if profile == "claim" else "valid"


def meets(decision: str | None, required: Required) -> bool:
    """Return whether a verdict is at least what was required; no verdict never is."""
    return decision is not None and _RANK[decision] >= _NEEDED[required]


def of_run(reason: str, decision: str | None, required: Required) -> int:
    """Return the exit code of a run that ended.

    Args:
        reason: the terminal claim's reason.
        decision: the verdict's decision, None where there is no verdict.
        required: what the requester asked for.
    """
    code = OF_REASON.get(reason, 70)
    if reason in {"passed", "gate_rejected"}:
        return 0 if meets(decision, required) else 1
    return code


def strongest(reasons: tuple[str, ...]) -> str:
    """Return the reason that decides when several are true of one run."""
    order = list(OF_REASON)
    return min(reasons, key=order.index)
