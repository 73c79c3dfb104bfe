"""`open --html`: the page of a run, a folder, a sweep or a preset; without any of them, of the bus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.screen.answer import Answer
from bridge.client.clone.run_ids import resolve
from bridge.client.clone.store import Store, holds_result
from bridge.client.document.parts import WrittenData
from bridge.client.evidence.sweep import SweptRuns
from bridge.client.page.writing import (
    write_bus_page,
    write_folder_page,
    write_history_page,
    write_page,
    write_sweep_page,
)
from bridge.client.send.sweep import runs_of, sent_sweep
from bridge.errors import RunNotFoundError, UsageError

if TYPE_CHECKING:
    from bridge.cli.mac.context import Invocation
    from bridge.cli.table.options import OpenOptions


def open_page(call: Invocation[OpenOptions]) -> Answer:
    """Write the page of what was named, else of the bus, and print its path."""
    if call.options.id is None:
        path = write_bus_page(call.connect(quiet=True))
    elif holds_result(folder := Path(call.directory, call.options.id)):
        path = write_folder_page(call.settings(), folder)
    else:
        path = _page_of(call, call.options.id)
    return Answer(WrittenData(str(path)), [str(path)])


def _page_of(call: Invocation[OpenOptions], name: str) -> Path:
    """Write the page of a sweep, else of a run, else of the stored results of a preset.

    Raises:
        RunNotFoundError: it is none of them.
        UsageError: it could be the name of no run, and nothing of a preset of that name is stored.
    """
    try:
        sweep = None if _is_known(call, name) else sent_sweep(Store(call.settings().state_dir), name)
        if sweep is not None:
            return _sweep_page(call, *sweep)
        run = call.find_run(name)
        return write_page(run.settings, run)
    except (RunNotFoundError, UsageError) as error:
        path = write_history_page(call.settings(), name)
        if path is None:
            error.args = (f"{error.message}; and no result of a preset of that name is stored here",)
            raise
        return path


def _is_known(call: Invocation[OpenOptions], name: str) -> bool:
    """Whether a text means a run that this clone sent or fetched."""
    ids = Store(call.settings().state_dir).ids()
    try:
        return resolve(name, ids, tuple) in ids
    except RunNotFoundError:
        return False


def _sweep_page(call: Invocation[OpenOptions], sweep_id: str, run_id: str) -> Path:
    """Ask about every run of a sweep on the bus that it was sent to, and write its page."""
    session = call.open(call.settings(run_id))
    runs = [call.run_on(session, run_id) for run_id in runs_of(session, sweep_id)]
    return write_sweep_page(session.settings, SweptRuns(sweep_id, runs, [run.status() for run in runs]))
