"""`quote`, `compare`, `report`: what a reader of a result does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.look import finished
from bridge.cli.screen.output import size_text
from bridge.client.clone.store import read_folder
from bridge.client.connection.pins import pins, signature_of
from bridge.client.connection.run_bus import is_own, pinned_bus, require_same_bus, sent_from
from bridge.client.connection.session import BusSession
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence import compare as comparing
from bridge.client.evidence import reports as report_rows
from bridge.client.evidence.quote import quote as make_quote
from bridge.client.run.present import document
from bridge.client.run.result import Result, read_result
from bridge.client.run.status import RunStatus
from bridge.client.run.stored import Origin
from bridge.errors import UsageError
from bridge.ids import short
from bridge.limits import REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.strictjson import StrictJsonError, decode


def quote(call: Invocation) -> int:
    """Print a pasteable block, or refuse loudly."""
    origin, standing = finished(call, call.args.id)
    result = _result_of(standing)
    record = origin.record if isinstance(origin, BusSession) else None
    settings = call.settings(result.id)
    sent = sent_from(settings, result.id)
    if record is None:
        require_same_bus(settings, result.id, pinned_bus(settings), "quote")
    signature = signature_of(result.tree.files, pins(settings, record=record, own=is_own(settings, sent)))
    quoted = make_quote(result, signature, markdown=call.args.markdown)
    for line in quoted.lines:
        call.output.data(line)
    for claim, why in quoted.refused:
        call.output.say("warn", f"{clean_line(claim)} may NOT be quoted: {why}")
    code = 0 if quoted.lines else 1
    if code:
        call.output.say("error", f" nothing of {short(result.id)} may be quoted")
    call.output.document({**document(origin, standing, "quote", exit_code=code), "data": quoted.data()})
    return code


def compare(call: Invocation) -> int:
    """Put two runs side by side, with the gate's statistics where both measured the same prompts."""
    (origin, first), (_, second) = (_side(call, what) for what in (call.args.a, call.args.b))
    lines, measured = comparing.compare(first, second), comparing.measured(first, second)
    for text in _side_by_side((short(first.id), short(second.id)), lines):
        call.output.data(text)
    for one in measured.differences:
        call.output.row("B vs A", f"{clean_line(one.wording)}   NOT CITABLE")
    for floor in measured.noise:
        call.output.row("noise", f"{floor.stage}: {comparing.noise_text(floor.a, floor.b, floor.confidence)}")
    for reason in measured.reasons:
        where = "" if reason.report is None else f"{reason.report}: "
        call.output.row(reason.kind, clean_line(where + reason.text))
    call.output.say("note", comparing.CAUTION)
    data = {"a": first.id, "b": second.id, "caution": comparing.CAUTION, "lines": [line.data() for line in lines]}
    document = {**data, **comparing.data(measured)}
    call.output.document(of_data("compare", document, bus=None if origin is None else origin.bus_part()))
    return 0


def _side_by_side(ids: tuple[str, str], lines: list[comparing.Line]) -> Iterator[str]:
    """Yield the table of facts: what is the same is said once, so that columns are as wide as what differs."""
    cleaned = [(line.same, clean_line(line.name), clean_line(line.a), clean_line(line.b)) for line in lines]
    label = max((len(name) for _, name, _, _ in cleaned), default=0)
    column = max((len(ids[0]), *(len(a) for same, _, a, _ in cleaned if not same)))
    yield f"  {'':<{label}}  {ids[0]:<{column}}  {ids[1]}"
    for same, name, a, b in cleaned:
        yield f"= {name:<{label}}  {a}" if same else f"* {name:<{label}}  {a:<{column}}  {b}"


def _side(call: Invocation, what: str) -> tuple[Origin | None, Result]:
    """Return a result by run id, or from a folder that holds one."""
    folder = Path(call.directory, what)
    if folder.is_dir():
        return None, read_result(read_folder(folder))
    origin, standing = finished(call, what)
    return origin, _result_of(standing)


def report(call: Invocation) -> int:
    """Show reports arm by arm."""
    path = Path(call.directory, call.args.what)
    if path.is_file():
        found = {path.name: _load(path)}
    else:
        result = _result_of(finished(call, call.args.what)[1])
        found = {name: dict(value) for name, value in result.reports.items()}
        if not found:
            raise UsageError(f"run {result.id} left no report", remedy=f"kakeya-mac logs {result.id}")
    for name, value in found.items():
        call.output.row("report", clean_line(name))
        for label, text in report_rows.rows(value):
            call.output.row(label, clean_line(text))
    call.output.document(of_data("report", found))
    return 0


def _result_of(standing: RunStatus) -> Result:
    if standing.result is None:
        raise RuntimeError("a finished run has a result")
    return standing.result


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
