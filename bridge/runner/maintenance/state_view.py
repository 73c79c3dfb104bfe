"""Say in lines what a runner's state file holds, for its owner; reads only, also from a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bridge.runner.state.database import reading
from bridge.runner.state.history import JournalLine, RunHistory, after
from bridge.runner.state.journal import read_lines


def state_lines(path: Path) -> Iterator[str]:
    """Yield what the file holds in all: the chain, how much is known, and the runs that have not ended here.

    Raises:
        JournalError: there is no file, or it does not hold.
    """
    with reading(path) as rows:
        chain = rows.execute("SELECT name, sequence, run FROM chain").fetchone()
        ((let_in,),) = rows.execute("SELECT count(*) FROM ledger")
        attempts, questions = rows.execute("SELECT count(*), count(DISTINCT key) FROM attempts").fetchone()
        facts = dict(rows.execute("SELECT name, value FROM facts ORDER BY name"))
    lines = list(read_lines(path))
    yield f"file      {path}"
    since = f" since {lines[0].time}" if lines else ""
    yield f"journal   {len(lines)} events{since}; the chain of digests holds"
    name, sequence, run = chain or ("", 0, None)
    newest = "nothing is signed yet" if not sequence else f"the newest result is number {sequence}, of run {run}"
    yield f"chain     {name[:12] or 'none'}; {newest}"
    yield f"ledger    {let_in} requests were let in and are remembered, for 30 days at least"
    yield f"attempts  {attempts} of {questions} questions"
    for fact, value in facts.items():
        yield f"{fact:<9} {value}"
    for history in _unended(lines):
        built = "" if history.built is None else f", built as {history.built.ending.reason}"
        yield f"run       {history.id}  {history.stage.name.lower()}{built}"


def event_lines(path: Path, run: str) -> Iterator[str]:
    """Yield the events of the runs whose id ends so, oldest first.

    Raises:
        JournalError: there is no file, or it does not hold.
    """
    for line in read_lines(path):
        if line.id.endswith(run.lower()):
            detail = " ".join(f"{name}={value}" for name, value in line.detail.items())
            yield f"{line.time} {line.id} {line.event:<12} {line.oid or '':<12.12} {detail}".rstrip()


def _unended(lines: Iterable[JournalLine]) -> tuple[RunHistory, ...]:
    histories: dict[str, RunHistory] = {}
    for line in lines:
        history = after(histories.get(line.id), line)
        if history is None:
            histories.pop(line.id, None)
        else:
            histories[line.id] = history
    return tuple(histories.values())
