"""What the runs of a sweep measured, side by side: rows for people and for tools, and what they differ by.

A table of several questions is exploratory: whoever picks the best row has to measure it again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.client.document.comparison import SweepClaim, SweepData, SweepDifference, SweepRun
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.compare import claim_text, host_class, measured
from bridge.client.evidence.judged import JudgedResult
from bridge.client.run.run import Run
from bridge.client.run.status import RunStatus
from bridge.gate.comparability import NEVER_CITABLE
from bridge.ids import short
from bridge.records.base import ParamValue
from bridge.records.request import Request
from bridge.records.run import HostRecord
from bridge.records.verdict import ClaimResult
from bridge.run.outcomes import OUTCOMES, strongest

EXPLORATORY: Final = "a sweep is exploratory: its best row is the best of several looks; run that one again to quote it"


@dataclass(frozen=True)
class SweepRow:
    """One run of a sweep.

    Attributes:
        params: the parameters that differ within the sweep.
        repeat: from 0.
        reason: how it ended, ``pending`` while it goes on.
        judged: its result, judged here; None before there is one.
    """

    id: str
    params: Mapping[str, ParamValue]
    repeat: int
    reason: str
    exit_code: int
    judged: JudgedResult | None

    @property
    def claims(self) -> tuple[ClaimResult, ...]:
        """What its verdict says, the primary claim first."""
        verdict = None if self.judged is None else self.judged.verdict
        return () if verdict is None else tuple(sorted(verdict.claims, key=lambda claim: claim.role != "primary"))

    @property
    def host(self) -> HostRecord | None:
        """The machine that it was measured on: of a cluster, the node."""
        record = None if self.judged is None else self.judged.result.record
        return None if record is None else record.host


@dataclass
class SweptRuns:
    """The runs of a sweep, and what is known of those that were asked; of the others, what was sent.

    Attributes:
        statuses: the status of each run in turn, as far as they were waited for.
    """

    id: str
    runs: Sequence[Run]
    statuses: list[RunStatus] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """The strongest code of the runs."""
        return strongest(status.exit_code for status in self.statuses)

    @property
    def reason(self) -> str:
        """Why the strongest of them ended."""
        return next(status.reason for status in self.statuses if status.exit_code == self.exit_code)

    @property
    def rows(self) -> list[SweepRow]:
        """What each run was, and what it gave."""
        requests = self._requests()
        names = _swept([request for request in requests if request is not None])
        triples = itertools.zip_longest(self.runs, requests, self.statuses)
        return [_row(run, request, status, names) for run, request, status in triples]

    def _requests(self) -> list[Request | None]:
        requests: list[Request | None] = [status.request for status in self.statuses]
        return requests + [run.known_request for run in self.runs[len(requests) :]]

    @property
    def preset(self) -> str:
        """The preset of its runs, as they were sent; empty where that cannot be read."""
        return next((request.preset for request in self._requests() if request is not None), "")

    def data(self) -> SweepData:
        """Return it as `--json` shows it."""
        rows = self.rows
        return _data(self.id, self.preset, [_shown(row) for row in rows], list(differences(rows)))


def _row(run: Run, request: Request | None, status: RunStatus | None, names: Sequence[str]) -> SweepRow:
    return SweepRow(
        id=run.id,
        params={} if request is None else {name: request.params[name] for name in names},
        repeat=0 if request is None or request.sweep is None else request.sweep.repeat,
        reason="pending" if status is None else status.reason,
        exit_code=OUTCOMES["pending"].exit_code if status is None else status.exit_code,
        judged=None if status is None or status.result is None else JudgedResult.of_run(run),
    )


def data_of_drafts(requests: Sequence[tuple[str, dict[str, ParamValue]]]) -> SweepData:
    """Return a sweep that was not sent as `--json` shows it.

    Args:
        requests: preset and parameters of each.
    """
    return _data(None, requests[0][0], [SweepRun(None, params, "dry_run") for _, params in requests], [])


def _data(sweep: str | None, preset: str, runs: list[SweepRun], differing: list[SweepDifference]) -> SweepData:
    return SweepData(sweep, preset, f"{EXPLORATORY}; {NEVER_CITABLE}", runs, differing)


def _swept(requests: Sequence[Request]) -> tuple[str, ...]:
    """Return the names of the parameters that differ between requests."""
    names = dict.fromkeys(name for request in requests for name in request.params)
    return tuple(name for name in names if len({repr(request.params.get(name)) for request in requests}) > 1)


def table(rows: Sequence[SweepRow]) -> Iterator[str]:
    """Yield the lines of a table: what was set, how it ended, and the primary metric with unit and interval."""
    names = tuple(rows[0].params) if rows else ()
    primary = next((row.claims[0] for row in rows if row.claims), None)
    metric = "" if primary is None else primary.metric
    places = hosts(rows)
    cells = [(*names, "repeat", "run", *places, "ended", metric)]
    for row in rows:
        answer = None if row.judged is None else row.judged.quotation
        verdict = "" if answer is None else f" ({answer.word})"
        shown = claim_text(row.claims[0], row.judged) if row.claims else "-"
        set_to = (str(row.params[name]) for name in names)
        where = (places[name](row) for name in places)
        cells.append((*set_to, str(row.repeat + 1), short(row.id), *where, f"{row.reason}{verdict}", shown))
    widths = [max(len(clean_line(line[at])) for line in cells) for at in range(len(cells[0]))]
    for line in cells:
        yield "  ".join(clean_line(cell).ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def hosts(rows: Sequence[SweepRow]) -> dict[str, Callable[[SweepRow], str]]:
    """Return what says where a row ran, by name of its column; empty where all ran on one machine."""
    ways: dict[str, Callable[[SweepRow], str]] = {
        "node": lambda row: "-" if row.host is None else row.host.name,
        "host": lambda row: "-" if row.host is None else host_class(row.host),
    }
    ran = [row for row in rows if row.host is not None]
    return {name: shown for name, shown in ways.items() if len({shown(row) for row in ran}) > 1}


def differences(rows: Sequence[SweepRow]) -> Iterator[SweepDifference]:
    """Yield what each row differs by from the first row of its repeat.

    Rows of other classes of hosts are held against the first of their own class: what their times differ by says
    nothing of what was set.
    """
    first: dict[tuple[int, str], SweepRow] = {}
    for row in rows:
        if row.judged is None:
            continue
        against = first.setdefault((row.repeat, "" if row.host is None else host_class(row.host)), row)
        if against is row or against.judged is None:
            continue
        for number in measured(against.judged, row.judged).differences:
            yield SweepDifference(
                against.id, row.id, number.metric, number.value, number.interval, number.unit, number.n, number.wording
            )


def _shown(row: SweepRow) -> SweepRun:
    verdict = None if row.judged is None else row.judged.verdict
    return SweepRun(
        row.id,
        dict(row.params),
        row.reason,
        repeat=row.repeat,
        node=None if row.host is None else row.host.name,
        host_class=None if row.host is None else host_class(row.host),
        exit_code=row.exit_code,
        verdict=None if verdict is None else verdict.decision,
        claims=tuple(_claim(claim) for claim in row.claims),
    )


def _claim(claim: ClaimResult) -> SweepClaim:
    """Return a claim as tables show it: the number, its interval and unit, and which direction is better."""
    better = claim.detail.get("better")
    return SweepClaim(claim.metric, claim.value, claim.interval, claim.unit, better, claim.decision, claim.wording)
