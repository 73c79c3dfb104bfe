"""`gate check`, `gate rules`, `gate explain`: the gate, used by hand."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from bridge.cli.mac.context import Invocation
from bridge.client.connection.pins import pins
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.gate_files import Judged, NoReport, judge_paths
from bridge.run.outcomes import Required, meets


def check(call: Invocation) -> int:
    """Judge files and folders; exit 1 when one is below what is required or does not verify."""
    required: Required = call.args.require or "valid"
    trusted = pins(call.settings(), option=call.args.runner_key or ())
    found = list(judge_paths([Path(call.directory, path) for path in call.args.paths], trusted))
    judged = [one for one in found if isinstance(one, Judged)]
    others = [one for one in found if isinstance(one, NoReport)]
    failed = 0
    for one in judged:
        _print(call, one)
        failed += bool(one.problems) or not meets(one.verdict.decision, required)
    code = 1 if failed else 0
    for other in others:
        call.output.say("skip", f" {other.path}: {other.reason}")
    said = f", {len(others)} not judged" if others else ""
    call.output.say("gate", f"{len(judged)} judged, {failed} below {required}{said}")
    data = [
        {"path": str(one.path), "problems": list(one.problems), "verdict": one.verdict.model_dump(mode="json")}
        for one in judged
    ]
    call.output.document(of_data("gate check", data, exit_code=code, reason="gate_rejected" if code else "passed"))
    return code


def rules(call: Invocation) -> int:
    """List the rules."""
    from bridge.gate import rules_catalogue

    entries = rules_catalogue()
    for entry in entries:
        call.output.data(f"{entry.code:<24} {entry.severity:<12} {entry.message}")
    call.output.document(of_data("gate rules", [asdict(entry) for entry in entries]))
    return 0


def explain(call: Invocation) -> int:
    """Say what one rule is for."""
    from bridge.gate import explain as page

    text = page(call.args.code)
    call.output.data(text.rstrip("\n"))
    call.output.document(of_data("gate explain", {"code": call.args.code.upper(), "text": text}))
    return 0


def _print(call: Invocation, judged: Judged) -> None:
    from bridge.gate import render

    verdict = judged.verdict
    match call.args.format:
        case "markdown":
            text = render.markdown(verdict)
        case "junit":
            text = render.junit(verdict)
        case "annotations":
            text = render.annotations(verdict)
        case _:
            text = render.table(verdict, judged.record)
            call.output.row("path", str(judged.path))
    for problem in judged.problems:
        call.output.say("error", f" {judged.path}: {clean_line(problem)}")
    call.output.data(text.rstrip("\n"))
