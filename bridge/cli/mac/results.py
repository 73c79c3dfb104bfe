"""Find the result that a command is about, by its run or by its folder, and say the same of it first everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.answer import Row
from bridge.client.clone.store import holds_result, id_in
from bridge.client.connection.pins import Pins, pins
from bridge.client.connection.run_bus import is_own, pinned_bus, require_same_bus, sent_from
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.judged import JudgedResult, first_line
from bridge.client.run.run import Run
from bridge.errors import RunNotFoundError, UsageError
from bridge.records.verdict import Verdict
from bridge.trust.judgement import TrustAnswer

if TYPE_CHECKING:
    from bridge.cli.table.command import Options


def find_result(call: Invocation[Options], what: str, option: tuple[str, ...] = ()) -> tuple[Run | None, JudgedResult]:
    """Return a result by the id of its run, or from the folder that holds it, judged again.

    Args:
        call: of the command.
        what: the id or the folder.
        option: keys named on the command line, which count for a folder.

    Raises:
        IntegrityError: the folder holds no result tree.
        PendingError: the run has no result yet.
    """
    folder = Path(call.directory, what)
    if holds_result(folder):
        return None, JudgedResult.of_folder(folder, pins_of(call, id_in(folder), option))
    if "/" in what:
        raise UsageError(
            f"there is no folder {what[:200]!r}; expected one of a result, or a run id", remedy="kakeya-mac ls"
        )
    try:
        run = call.find_run(what)
    except RunNotFoundError as error:
        raise RunNotFoundError(f"{error.message}, and there is no such folder", remedy=error.remedy) from error
    return run, JudgedResult.of_run(run)


def pins_of(call: Invocation[Options], run_id: str | None, option: tuple[str, ...] = ()) -> Pins:
    """Return what to go by for a run of which only a result is here, no bus having been asked."""
    settings = call.settings(run_id)
    sent = sent_from(settings, run_id)
    if sent is not None and not option:
        require_same_bus(settings, sent.id, pinned_bus(settings), call.command.name)
    return keys_for(call, run_id, option)


def keys_for(call: Invocation[Options], run_id: str | None, option: tuple[str, ...]) -> Pins:
    """Return the keys of the bus that a run was sent to, whichever that is."""
    settings = call.settings(run_id)
    return pins(settings, option=option, own=is_own(settings, sent_from(settings, run_id)))


def first_row(run_id: str, verdict: Verdict | None, answer: TrustAnswer | None) -> Row:
    """Return whose result it is, what the gate here says of it, and whether its signature holds."""
    return Row("result", clean_line(first_line(run_id, verdict, answer)))


def runs_of_set(call: Invocation[Options], words: Sequence[str]) -> list[str]:
    """Return what was typed for results; a set of sittings that was sent from here, by its own id, as all its runs."""
    from bridge.client.clone.store import Store
    from bridge.client.send.sweep import sent_set

    if len(words) > 1 or holds_result(Path(call.directory, words[0])):
        return list(words)
    return sent_set(Store(call.settings(words[0]).state_dir), words[0]) or list(words)
