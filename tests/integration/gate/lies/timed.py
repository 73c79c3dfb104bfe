"""Other tokens than were decoded, or another time than it took."""

from __future__ import annotations

from tests.integration.gate.lies.registry import lie, rows, told
from tests.integration.gate.workload import Behaviour, Pipe, Report, digest_of, state_ratio


@told("replaced-tokens", "G4-MARKS", fell="outputs")
def _(report: Report) -> None:
    for arm in (0, 1):
        for row in rows(report, arm):
            row["tokens"] = [7 + token % 1000 for token in row["tokens"]]
            row["token_digest"] = digest_of(row["tokens"])
            row["text"] = " ".join(f"w{token}" for token in row["tokens"])


@lie("scaled-decode-times", "G4-MARKS", fell="times")
def _() -> Behaviour:
    def finish(report: Report) -> Report:
        for row in rows(report):
            row["stages"]["decode_s"] *= 0.02
            row["stages"]["total_s"] = row["stages"]["prefill_s"] + row["stages"]["decode_s"]
        state_ratio(report)
        return report

    return Behaviour(step_s=0.05, token_s=0.002, finish=finish)


@lie("marks-in-advance", "G4-MARKS", fell="times")
def _() -> Behaviour:
    def begin(pipe: Pipe, names: list[str]) -> None:
        for name in names:
            for event in ("start", "first_token", "end"):
                digest = {"token_digest": "ab" * 32} if event == "end" else {}
                pipe.write({"event": event, "sample": name, **digest})

    return Behaviour(begin=begin, announce=lambda pipe, mark: None)


@lie("marks-twice", "G4-MARKS", fell="times")
def _() -> Behaviour:
    def announce(pipe: Pipe, mark: dict[str, str]) -> None:
        pipe.write(mark)
        pipe.write(mark)

    return Behaviour(announce=announce)


@lie("no-marks", "G4-MARKS", fell="times")
def _() -> Behaviour:
    return Behaviour(announce=lambda pipe, mark: None)


@lie("marks-of-samples-that-are-not-there", "G4-MARKS", fell="times")
def _() -> Behaviour:
    def begin(pipe: Pipe, names: list[str]) -> None:
        pipe.write({"event": "start", "sample": "0/99/speculative/ghost"})

    return Behaviour(begin=begin)


@lie("an-end-mark-without-its-digest", "G4-MARKS", fell="times")
def _() -> Behaviour:
    def announce(pipe: Pipe, mark: dict[str, str]) -> None:
        pipe.write({name: value for name, value in mark.items() if name != "token_digest"})

    return Behaviour(announce=announce)


@lie("sleeps-for-seconds", "G3-PROCESSOR", fell="times", decision="valid", reason="passed")
def _() -> Behaviour:
    return Behaviour(token_s=0.02, step_s=0.035)
