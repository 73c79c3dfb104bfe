"""How a run ends: one reason, one line for people, one exit code. Knows no stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bridge.errors import REMEDY_MARK, KakeyaError, PolicyRefusedError, UsageError
from bridge.limits import TEXT_MAX_CHARS
from bridge.records import Delivery, Reason

EXIT_CODES: Final[Mapping[Reason, int]] = MappingProxyType(
    {
        "passed": 0,
        "gate_rejected": 1,
        "request_rejected": 2,
        "runner_lost": 3,
        "interrupted": 3,
        "expired": 3,
        "publish_failed": 3,
        "infrastructure": 3,
        "program_failed": 4,
        "timed_out": 5,
        "cancelled": 6,
        "policy_refused": 7,
    }
)


@dataclass(frozen=True)
class Ending:
    """Why a run ended; `message` is made one line, bounded and without control characters, or None.

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
        return EXIT_CODES[self.reason]


@dataclass(frozen=True)
class RunOutcome:
    """What came of one request on this runner.

    Attributes:
        delivery: ``copied``, ``branch_moved``, ``branch_deleted``, or ``spooled`` while it could not be published.
    """

    id: str
    ending: Ending
    result_oid: str | None
    delivery: Delivery

    @property
    def exit_code(self) -> int:
        """The ending's exit code; 3 while the result is only in the spool."""
        return 3 if self.delivery == "spooled" else self.ending.exit_code


class EndedError(KakeyaError):
    """A run ends here although nothing is wrong: cancelled, expired, interrupted."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message or ending.reason)
        self.ending = ending


def _said(error: KakeyaError) -> str:
    """Return message and remedy as one line that a reader can take apart again."""
    return one_line(error.message if error.remedy is None else f"{error.message}{REMEDY_MARK}{error.remedy}")


def of_error(error: Exception) -> Ending:
    """Return the ending an exception means; what nobody raised on purpose is our bug, never the requester's."""
    if isinstance(error, EndedError):
        return error.ending
    if isinstance(error, UsageError):
        return Ending("request_rejected", _said(error))
    if isinstance(error, PolicyRefusedError):
        return Ending("policy_refused", _said(error))
    if isinstance(error, KakeyaError):
        return Ending("infrastructure", _said(error))
    return Ending("infrastructure", one_line(f"bug: {type(error).__name__}: {error}"))


def one_line(text: str) -> str:
    """Return text as a record may hold it: one line, no control characters, bounded."""
    line = "".join(char if char.isprintable() else " " for char in text)
    line = " ".join(line.split())
    return line if len(line) <= TEXT_MAX_CHARS else f"{line[: TEXT_MAX_CHARS - 1]}…"
