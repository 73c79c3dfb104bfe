"""`verify`, `quote`, `compare`, `report`: what a reader of a result does."""

from __future__ import annotations

from pathlib import Path

from bridge.cli.context import Invocation
from bridge.cli.mac_run import connect
from bridge.cli.output import size_text
from bridge.client import reports as report_rows
from bridge.client import verify as checking
from bridge.client.compare import CAUTION
from bridge.client.compare import compare as compare_results
from bridge.client.envelope import of_data
from bridge.client.outcome import stand
from bridge.client.present import document
from bridge.client.quote import quote as make_quote
from bridge.client.result import Result, read_result
from bridge.client.session import Session
from bridge.client.untrusted import clean_line
from bridge.errors import PendingError, UsageError
from bridge.ids import short
from bridge.limits import REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.strictjson import StrictJsonError, decode


def verify(call: Invocation) -> int:
    """Check a result offline; exit 1 when something does not hold."""
    verification = _verification(call, call.args.what)
    output = call.output
    for check in verification.checks:
        output.row("ok" if check.ok else "FAILED", f"{clean_line(check.name)}: {clean_line(check.text)}")
    name = verification.run_id or verification.source
    if verification.ok:
        output.row("verified", f"{name}   {'signed' if verification.signed else checking.UNSIGNED}")
    else:
        broken = sum(not check.ok for check in verification.checks)
        output.row("NOT VERIFIED", f" {name}   {broken} of {len(verification.checks)} checks failed")
    code = 0 if verification.ok else 1
    data = {
        "source": verification.source,
        "id": verification.run_id,
        "ok": verification.ok,
        "signed": verification.signed,
        "checks": [check.data() for check in verification.checks],
    }
    message = None if verification.signed else checking.UNSIGNED
    output.document(of_data("verify", data, exit_code=code, reason="ok" if code == 0 else "integrity", message=message))
    return code


def quote(call: Invocation) -> int:
    """Print a pasteable block, or refuse loudly."""
    session, result = _result(call, call.args.id)
    quoted = make_quote(result, markdown=call.args.markdown)
    for line in quoted.lines:
        call.output.data(line)
    for claim, why in quoted.refused:
        call.output.say("warn", f"{clean_line(claim)} may NOT be quoted: {why}")
    code = 0 if quoted.lines else 1
    if code:
        call.output.say("error", f" nothing of {short(result.id)} may be quoted")
    standing = document(session, stand(session, result.id, session.bus.view(result.id)), "quote", exit_code=code)
    call.output.document({**standing, "data": quoted.data()})
    return code


def compare(call: Invocation) -> int:
    """Put two runs side by side."""
    session, first = _result(call, call.args.a)
    _, second = _result(call, call.args.b, session)
    lines = compare_results(first, second)
    call.output.data(f"{'':<24}  {short(first.id):<34}{short(second.id)}")
    for line in lines:
        mark = " " if line.same else "*"
        call.output.data(f"{mark} {clean_line(line.name):<22}  {clean_line(line.a):<34}{clean_line(line.b)}")
    call.output.say("note", CAUTION)
    data = {"a": first.id, "b": second.id, "caution": CAUTION, "lines": [line.data() for line in lines]}
    call.output.document(of_data("compare", data, bus=session.bus_part()))
    return 0


def report(call: Invocation) -> int:
    """Show reports arm by arm."""
    path = Path(call.directory, call.args.what)
    if path.is_file():
        found = {path.name: _load(path)}
    else:
        _, result = _result(call, call.args.what)
        found = {name: dict(value) for name, value in result.reports.items()}
        if not found:
            raise UsageError(f"run {result.id} left no report", remedy=f"kakeya-mac logs {result.id}")
    for name, value in found.items():
        call.output.row("report", clean_line(name))
        for label, text in report_rows.rows(value):
            call.output.row(label, clean_line(text))
    call.output.document(of_data("report", found))
    return 0


def _verification(call: Invocation, what: str) -> checking.Verification:
    folder = Path(call.directory, what)
    if folder.is_dir():
        return checking.verify_folder(folder)
    if "/" in what:
        from bridge.client.gitdoor import read_branch_result

        settings = call.settings()
        if settings.repository is None:
            raise UsageError(f"there is no {what} here, and no git clone whose branch it could be")
        return checking.verify(read_branch_result(settings.repository.top, what), source=what)
    session = connect(call, quiet=True)
    return checking.verify_id(session, session.find(what))


def _result(call: Invocation, what: str, session: Session | None = None) -> tuple[Session, Result]:
    """Return a run's verified result."""
    if session is None:
        session = connect(call, quiet=True)
    run_id = session.find(what)
    standing = stand(session, run_id, session.bus.view(run_id))
    if standing.result is None:
        raise PendingError(
            f"{short(run_id)} has no result yet: {standing.state.text()}", remedy=f"kakeya-mac attach {run_id}"
        )
    return session, read_result(standing.result.tree, run_id)


def _load(path: Path) -> dict[str, object]:
    size = path.stat().st_size
    if size > REPORT_MAX_BYTES:
        raise UsageError(f"{path}: {size_text(size)}; a report has at most {size_text(REPORT_MAX_BYTES)}")
    try:
        value = decode(path.read_bytes(), max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
    except StrictJsonError as error:
        raise UsageError(f"{path} is no report: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} is no report: a JSON {type(value).__name__}, expected an object")
    return value
