"""How a run ends: one table from reason to exit code, for hosts, requesters, help and guides.

Imports no record at run time: the help of `kakeya-mac` prints the table and has to stay light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from bridge.errors import KakeyaError, PolicyRefusedError, UsageError, of_system
from bridge.limits import TEXT_MAX_CHARS
from bridge.run.requirement import Requirement, satisfied

if TYPE_CHECKING:
    from bridge.records.claim import Delivery, Reason
    from bridge.records.verdict import Verdict


@dataclass(frozen=True)
class OutcomeRow:
    """What one reason means.

    Attributes:
        exit_code: what a waiting command ends in.
        meaning: one line for people.
        retryable: whether the same request may end differently with no change by the requester.
        remedy: the command to run next, with ``ID`` for the run; None where the message of the run says it.
    """

    exit_code: int
    meaning: str
    retryable: bool = False
    remedy: str | None = None


_RETRY: Final = "kakeya-mac retry ID --wait"
_ATTACH: Final = "kakeya-mac attach ID"
_LOGS: Final = "kakeya-mac logs ID"

# Strongest first: a run that was refused never ran, so no later fact can matter.
OUTCOMES: Final[Mapping[str, OutcomeRow]] = MappingProxyType(
    {
        "request_rejected": OutcomeRow(2, "the host rejected the request as malformed"),
        "policy_refused": OutcomeRow(7, "refused by the policy of the host's owner; the message names the line"),
        "cancelled": OutcomeRow(6, "cancelled"),
        "timed_out": OutcomeRow(5, "a time limit or another bound ended the run", remedy=_LOGS),
        "runner_lost": OutcomeRow(3, "the runner was silent for its whole lease; nothing ran twice", True, _RETRY),
        "interrupted": OutcomeRow(3, "the runner was asked to stop", True, _RETRY),
        "expired": OutcomeRow(3, "no runner started it before it expired", True, _RETRY),
        "infrastructure": OutcomeRow(3, "the host could not run it", True, _RETRY),
        "publish_failed": OutcomeRow(3, "it ran, and its result is not delivered yet", True, _ATTACH),
        "program_failed": OutcomeRow(4, "the program failed", remedy=_LOGS),
        "gate_rejected": OutcomeRow(1, "the gate rejected the result"),
        "below_required": OutcomeRow(1, "done, and the verdict is below --require"),
        "unwanted": OutcomeRow(1, "done, and the primary claim is what --fail-if names"),
        "pending": OutcomeRow(8, "still pending when the wait ended; nothing is lost", True, _ATTACH),
        "passed": OutcomeRow(0, "done: the result is not rejected, and meets --require"),
    }
)

BUG: Final = 70
JUDGED_DIFFERENTLY: Final = 13
# What `verify` ends in for each answer about a signature; other commands end in the last two of them only.
ANSWER_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {"verified": 0, "unsigned": 9, "first use": 10, "untrusted": 11, "altered": 12}
)

# What commands that are not about the end of one run add to the codes above.
_OF_COMMANDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "a submission without --wait was pushed",
        1: "verify, doctor or gate check found something",
        2: "wrong command line or configuration",
        3: "no runner would take it, or the bus does not answer",
        9: "verify: unsigned bus: every byte holds, and nothing says who wrote it",
        10: "verify: first use: signed under an owner's key that nobody told this reader",
        11: "untrusted: nobody who may say this signed it",
        12: "altered: it is not what was signed, or not whole",
        JUDGED_DIFFERENTLY: "verify: judged differently: the gate here does not say what the result says",
        BUG: "a bug in Kakeya",
        130: "detached by Ctrl-C (SIGINT); the run goes on",
        141: "whoever read stdout left before the end; a run goes on",
        143: "detached by SIGTERM; the run goes on",
    }
)


def exit_meanings() -> dict[int, str]:
    """Return what each exit code of `kakeya-mac` means, in the order of the codes."""
    texts: dict[int, list[str]] = {}
    for row in OUTCOMES.values():
        texts.setdefault(row.exit_code, []).append(row.meaning)
    for code, text in _OF_COMMANDS.items():
        texts.setdefault(code, []).append(text)
    return {code: "; ".join(texts[code]) for code in sorted(texts)}


def strongest(codes: Iterable[int]) -> int:
    """Return the exit code of several runs together: a bug first, then by the order of the table."""
    order = (BUG, *(ANSWER_CODES[word] for word in ("altered", "untrusted")),
             *(row.exit_code for row in OUTCOMES.values()))  # fmt: skip
    return min(codes, key=order.index)


def ended_as(reason: str, verdict: Verdict | None, required: Requirement | None) -> str:
    """Return the reason a run that ended has for its requester: its own, or what keeps one that passed from exit 0.

    Args:
        reason: the terminal claim's reason.
        verdict: None where there is none.
        required: what the requester asked of it, None for anything but a rejection.
    """
    if reason != "passed" or satisfied(verdict, required):
        return reason
    return "below_required" if satisfied(verdict, None) else "gate_rejected"


def exit_code_of(reason: str, verdict: Verdict | None, required: Requirement | None) -> int:
    """Return the exit code of a run that ended, by what `ended_as` takes; a reason that a newer host invented is 70."""
    row = OUTCOMES.get(ended_as(reason, verdict, required))
    return BUG if row is None else row.exit_code


@dataclass(frozen=True)
class Ending:
    """Why a run ended on its host; `message` is made one bounded line without control characters, or None.

    A message may quote what a workload wrote: a record that refuses it would leave the run without an end.
    """

    reason: Reason
    message: str | None = None

    def __post_init__(self) -> None:
        if self.message is not None:
            object.__setattr__(self, "message", one_line(self.message))

    @property
    def exit_code(self) -> int:
        """The exit code of the requester's command, before what it requires of the gate."""
        return OUTCOMES[self.reason].exit_code


@dataclass(frozen=True)
class RunOutcome:
    """The end of one request on this runner.

    Attributes:
        delivery: ``copied``, ``branch_moved``, ``branch_deleted``, or ``spooled`` while it could not be published.
    """

    id: str
    ending: Ending
    result_oid: str | None
    delivery: Delivery

    @property
    def exit_code(self) -> int:
        """The ending's exit code; that of ``publish_failed`` while the result is only in the spool."""
        return OUTCOMES["publish_failed"].exit_code if self.delivery == "spooled" else self.ending.exit_code


class EndedError(KakeyaError):
    """Ends a run although nothing is wrong: cancelled, expired, interrupted."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message or ending.reason)
        self.ending = ending


def of_error(error: Exception) -> Ending:
    """Return the ending an exception means; what neither we nor the system raise is our bug, not the requester's."""
    if isinstance(error, EndedError):
        return error.ending
    if isinstance(error, OSError):
        error = of_system(error)
    if not isinstance(error, KakeyaError):
        return Ending("infrastructure", f"bug: {type(error).__name__}: {error}")
    # Message and remedy in one line, which a reader takes apart again.
    line = error.line
    if isinstance(error, UsageError):
        return Ending("request_rejected", line)
    return Ending("policy_refused" if isinstance(error, PolicyRefusedError) else "infrastructure", line)


def one_line(text: str) -> str:
    """Return text as a record may hold it: one line, no control characters, bounded."""
    line = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(line.split())
    return line if len(line) <= TEXT_MAX_CHARS else f"{line[: TEXT_MAX_CHARS - 1]}…"
