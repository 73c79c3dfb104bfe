"""Write the page of a run, a folder, a sweep or a preset: verify what it shows, gather its history, put it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.client.clone.config import ClientSettings
from bridge.client.clone.packed import SUFFIX, is_packed
from bridge.client.clone.store import Store, id_in
from bridge.client.connection.pins import Pins, answer_about, pins
from bridge.client.connection.run_bus import is_own, settings_of_run
from bridge.client.document.parts import RunRow
from bridge.client.evidence import verify as checking
from bridge.client.evidence.compare import value_text
from bridge.client.evidence.history import HistoryRow, params_of, rows_of_preset
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.sweep import SweptRuns
from bridge.client.page.bus_page import BusView, page_of_bus
from bridge.client.page.history_page import page_of_history
from bridge.client.page.pictures import kind_of
from bridge.client.page.result_page import page_of, page_of_refused
from bridge.client.page.sweep_page import page_of_sweep
from bridge.client.run.listing import rows
from bridge.client.run.result import read_folder_result, read_result
from bridge.client.run.run import Run
from bridge.errors import IntegrityError
from bridge.ids import short
from bridge.run.outcomes import ended_as
from bridge.system.clock import rfc3339
from bridge.system.durable import write_atomically
from bridge.trust.judgement import TrustAnswer
from bridge.trust.verifier import verify_tree

if TYPE_CHECKING:
    from bridge.client.connection.session import BusSession

BUS_RUNS: Final = 500  # the newest, on the page of a bus
_HISTORIES: Final = 3  # presets whose history it shows
_HISTORY_ROWS: Final = 120  # the newest of each
BUS_PAGE_BYTES: Final = 300_000
_MARKUP_BYTES: Final = 2_000  # around the pictures
_LOOKED_AT: Final = 20  # newest results that are read for their pictures
_PICTURES_BYTES: Final = 60_000


def write_page(settings: ClientSettings, run: Run) -> Path:
    """Write the page of a run whose result is there; return its path, beside the result's folder."""
    result, trusted = run.result(), run.pins()
    verified = checking.verify(result.tree, trusted, source=run.id, run_id=run.id)
    judged = JudgedResult.of(result, trusted)
    text = page_of(judged, verified.checks, earlier(settings, judged))
    return _put(settings, short(run.id), text)


def write_folder_page(settings: ClientSettings, folder: Path) -> Path:
    """Write the page of a result in a folder, also of one that does not verify: then of that alone.

    Raises:
        IntegrityError: there is nothing that could be a result.
    """
    if not is_packed(folder) and not (folder / "manifest.json").exists():
        raise IntegrityError(
            f"{folder} holds no manifest.json; expected the folder of a result", remedy="kakeya-mac ls"
        )
    trusted = pins(settings)
    verified = checking.verify_folder(folder, trusted)
    name = id_in(folder)
    named = short(name) if name is not None else folder.name.removesuffix(SUFFIX)
    if not verified.ok or verified.answer.refused:
        failed = "; ".join(f"{check.name}: {check.text}" for check in verified.checks if check.level == "fail")
        return _put(settings, named, page_of_refused(named, failed or verified.reason, verified.checks))
    return _put(settings, named, _whole(settings, folder, trusted, verified, named))


def write_bus_page(session: BusSession) -> Path:
    """Write the page of an open bus; return its path, beside the results' folders."""
    listed = rows(session, state=None, preset=None, limit=BUS_RUNS)
    runs = [_as_judged(session, row) for row in listed]
    measured = dict.fromkeys(row.preset for row in runs if row.fetched and row.preset is not None)
    histories = {name: list(rows_of_preset(session.settings, name)) for name in list(measured)[:_HISTORIES]}
    view = BusView(
        route="of this machine" if session.embedded else str(session.bus.route),
        at=rfc3339(session.clock.now()),
        runners=session.runners(),
        runs=runs,
        histories={name: points[-_HISTORY_ROWS:] for name, points in histories.items() if points},
        pictures={},
        embedded=session.embedded,
    )
    fetched = [row.id for row in runs if row.fetched]
    view = replace(view, pictures=_pictures(session.store, fetched, room_for_pictures(view)))
    return _put(session.settings, f"bus-{session.record.bus_id[:8]}", page_of_bus(view))


def _as_judged(session: BusSession, row: RunRow) -> RunRow:
    """Return a row with what this reader goes by of a stored result: whoever may push may write a verdict."""
    if not row.fetched:
        return row
    unjudged = replace(row, verdict=None, metric=None)
    try:
        tree = session.store.read_result(row.id)
        if verify_tree(tree.files, run_id=row.id):
            return replace(unjudged, reason="altered")
        result = read_result(tree, row.id)
    except IntegrityError:
        return replace(unjudged, reason="altered")
    answer = _answer(session, row, tree.files)
    if answer.refused:
        return replace(unjudged, reason=answer.word)
    verdict = result.verdict_for(answer)
    claims = () if verdict is None else verdict.claims
    numbers = [value_text(claim) for claim in claims if claim.role == "primary" and claim.value is not None]
    return replace(
        row,
        reason=None if row.reason is None else ended_as(row.reason, verdict, None),
        verdict=None if verdict is None else verdict.decision,
        metric=next(iter(numbers), None),
    )


def _answer(session: BusSession, row: RunRow, files: Mapping[str, bytes]) -> TrustAnswer:
    """Return whether a runner may say what a stored result says, by the keys of the bus that the run was sent to.

    Of a key that was revoked `verify` also asks the archives, run by run; a page of many does not.
    """
    sent = session.store.sent(row.id)
    if sent is None or sent.bus_id == session.record.bus_id:
        return answer_about(files, session.pins(), runner=row.runner)
    settings = settings_of_run(session.settings, row.id)
    return answer_about(files, pins(settings, own=is_own(settings, sent)))


def room_for_pictures(view: BusView) -> int:
    """Return how many bytes of pictures a page takes that has none so far: four of text hold three of a picture."""
    left = BUS_PAGE_BYTES - _MARKUP_BYTES - len(page_of_bus(view).encode())
    return min(_PICTURES_BYTES, max(0, left * 3 // 4))


def _pictures(store: Store, ids: list[str], room: int) -> dict[str, bytes]:
    """Return small pictures of the newest stored results that have some, by run and path."""
    pictures: dict[str, bytes] = {}
    for run_id in ids[:_LOOKED_AT]:
        try:
            tree = store.read_result(run_id)
            attachments = {} if verify_tree(tree.files, run_id=run_id) else read_result(tree, run_id).kept
        except IntegrityError:
            continue
        for name, data in attachments.items():
            if kind_of(data) is not None and len(data) <= room:
                room -= len(data)
                pictures[f"{short(run_id)} {name}"] = data
    return pictures


def write_sweep_page(settings: ClientSettings, sweep: SweptRuns) -> Path:
    """Write the page of a sweep; return its path, beside the results' folders."""
    return _put(settings, f"sweep-{short(sweep.id)}", page_of_sweep(sweep))


def write_history_page(settings: ClientSettings, preset: str) -> Path | None:
    """Write the page of the results of a preset that are stored here; None where none is."""
    rows = tuple(rows_of_preset(settings, preset))
    return _put(settings, f"preset-{preset}", page_of_history(preset, rows)) if rows else None


def _whole(settings: ClientSettings, folder: Path, trusted: Pins, verified: checking.Verification, named: str) -> str:
    try:
        judged = JudgedResult.of(read_folder_result(folder), trusted)
    except IntegrityError as error:
        return page_of_refused(named, error.message, verified.checks)
    return page_of(judged, verified.checks, earlier(settings, judged))


def earlier(settings: ClientSettings, judged: JudgedResult) -> list[HistoryRow]:
    """Return the primary claims of stored runs that asked the same, oldest first, its own too."""
    record, verdict = judged.result.record, judged.verdict
    if record is None or verdict is None:
        return []
    primaries = {claim.metric for claim in verdict.claims if claim.role == "primary"}
    same = (params_of(judged.result), verdict.profile, "primary")
    listed = rows_of_preset(settings, record.preset)
    return [
        row
        for row in listed
        if row.metric in primaries and row.value is not None and (row.params, row.profile, row.role) == same
    ]


def _put(settings: ClientSettings, name: str, text: str) -> Path:
    path = settings.runs_dir / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.encode(), mode=0o644)
    return path
