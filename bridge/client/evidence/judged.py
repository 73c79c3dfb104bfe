"""A result and what the gate here says of it, for a reader who knows who signed it: the one answer of every command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.client.clone.config import ClientSettings
from bridge.client.connection.pins import Pins, answer_about, pins
from bridge.client.run.result import Result, read_folder_result
from bridge.client.run.run import Run
from bridge.records import Verdict


@dataclass(frozen=True)
class JudgedResult:
    """A result, judged again; `verdict` is None where nothing was judged."""

    result: Result
    verdict: Verdict | None

    @classmethod
    def of(cls, result: Result, trusted: Pins) -> JudgedResult:
        """Judge a result by the keys of this reader."""
        if result.stored is None:
            return cls(result, None)
        return cls(result, result.judged(signed=answer_about(result.tree.files, trusted).signed))

    @classmethod
    def of_run(cls, run: Run) -> JudgedResult:
        """Judge the result of a run.

        Raises:
            PendingError: it has no result yet.
        """
        result, answer = run.result(), run.status().answer
        if result.stored is None or answer is None:
            return cls(result, None)
        return cls(result, result.judged(signed=answer.signed))

    @classmethod
    def of_folder(cls, folder: Path, settings: ClientSettings) -> JudgedResult:
        """Judge the result in a folder.

        Raises:
            IntegrityError: it holds no result tree.
        """
        return cls.of(read_folder_result(folder), pins(settings))


def said_otherwise(result: Result, verdict: Verdict) -> str | None:
    """Return that a stored verdict is not what the gate here says, with both and the reason; None where it is."""
    stored = result.stored
    if stored is None or stored.decision == verdict.decision:
        return None
    which = "another gate" if stored.gate.digest != verdict.gate.digest else "the same gate, on its host"
    then = f"judged differently: the result says {stored.decision}, by {which} ({stored.gate.digest[:12]})"
    why = f", because {verdict.why[0]}" if verdict.why else ""
    return f"{then}; the gate here ({verdict.gate.digest[:12]}) says {verdict.decision}{why}"
