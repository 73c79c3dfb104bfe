"""What the runs of a sweep measured, side by side: rows for people and for tools, and what they differ by.

A table of several questions is exploratory: whoever picks the best row has to measure it again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bridge.client.document.comparison import SweepClaim, SweepData, SweepDifference, SweepRun
from bridge.client.document.untrusted import PREFIX
from bridge.client.evidence.compare import host_class, measured, value_text
from bridge.client.evidence.judged import JudgedResult
from bridge.client.run.cause import RAN_WELL, telling_line
from bridge.client.run.run import Run
from bridge.client.run.status import RunStatus
from bridge.gate.comparability import NEVER_CITABLE
from bridge.ids import short
from bridge.records.base import ParamValue
from bridge.records.request import Request
from bridge.records.run import HostRecord
from bridge.records.verdict import ClaimResult
from bridge.run.asked import parameters_text
from bridge.run.outcomes import OUTCOMES, strongest

EXPLORATORY: Final = "a sweep is exploratory: its best row is the best of several looks; run that one again to quote it"


_JUDGED_WELL: Final = frozenset({"passed", "below_required"})


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

    def claim(self, metric: str) -> ClaimResult | None:
        """Return what its verdict says of a metric, None where it says nothing."""
        return next((claim for claim in self.claims if claim.id == metric), None)

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

    def failures(self) -> dict[str, list[str]]:
        """Return the runs that failed by what is said of why: the line of the log that says most, else the host's."""
        runs: dict[str, list[str]] = {}
        for status in (status for status in self.statuses if status.reason not in {*RAN_WELL, "pending"}):
            cause = None if status.result is None else telling_line(status.reason, status.result.log)
            why = status.message if cause is None else f"{PREFIX}{cause}"
            if why:
                runs.setdefault(f"{status.reason}: {why}", []).append(short(status.id))
        return {why if len(ids) == 1 else f"{why} (and {len(ids) - 1} more)": ids for why, ids in runs.items()}

    @property
    def asked(self) -> str:
        """The preset, and the parameters that all runs share, on one line."""
        requests = [request for request in self._requests() if request is not None]
        shared = {} if not requests else dict(requests[0].params)
        for name in _swept(requests):
            shared.pop(name, None)
        return f"{self.preset} {parameters_text(shared)}".strip()

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


@dataclass(frozen=True)
class SweepColumn:
    """One column of the table of a sweep.

    Attributes:
        text: of a run.
        rank: what is left out first where there is little room has the highest; 0 is always there.
    """

    name: str
    text: Callable[[SweepRow], str]
    rank: int = 0


def columns(rows: Sequence[SweepRow]) -> list[SweepColumn]:
    """Return the columns of a table of runs: what was set, which run it is, how it ended, and what it measured.

    A column that would say the same of every run is left out: the repeat of one repeat, the host of one machine.
    """
    names = tuple(rows[0].params) if rows else ()
    shown = [SweepColumn(name, partial(_set_to, name)) for name in names]
    shown += [SweepColumn("repeat", lambda row: str(row.repeat + 1))] if any(row.repeat for row in rows) else []
    shown.append(SweepColumn("run", lambda row: short(row.id)))
    shown += [SweepColumn(name, place_of, 2) for name, place_of in hosts(rows).items()]
    shown.append(SweepColumn("ended", ended))
    for at, metric in enumerate(metrics(rows)):
        better = next(claim.detail.get("better") for row in rows for claim in row.claims if claim.id == metric)
        direction = f", {better} is better" if better else ""
        shown.append(SweepColumn(f"{metric}{direction}", partial(_number, metric), 0 if at == 0 else 2 + at))
    return shown


def metrics(rows: Sequence[SweepRow]) -> list[str]:
    """Return the ids of what the runs claim, primary ones first."""
    claims = sorted((claim for row in rows for claim in row.claims), key=lambda claim: claim.role != "primary")
    return list(dict.fromkeys(claim.id for claim in claims))


def ended(row: SweepRow) -> str:
    """Return how a run ended and, where its program did its work, whether its primary number may be quoted."""
    answer = None if row.judged is None else row.judged.quotation
    return row.reason if answer is None or row.reason not in _JUDGED_WELL else f"{row.reason} ({answer.word})"


def _set_to(name: str, row: SweepRow) -> str:
    return parameters_text({name: row.params[name]}).removeprefix(f"{name}=")


def _number(metric: str, row: SweepRow) -> str:
    claim = row.claim(metric)
    return "-" if claim is None else value_text(claim)


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
