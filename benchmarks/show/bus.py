"""What the issue on the bus promises to show."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import pushes
from benchmarks.show import own_tests
from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies import bus_calls, bus_chaos, bus_delays, bus_fleet, bus_listings, bus_service
from benchmarks.studies.report import ROOT, report_of
from benchmarks.studies.study import Row, Study

STUDIES = "make studies AREA=bus"
PAGE = "docs/bus.md"
IDLE_HOURS = 6


def rows_of(study: Study) -> dict[str, Row]:
    """Return the first row of each case of a study that was measured."""
    return {entry["case"]: entry["rows"][0] for entry in report_of("bus", study.name).entries()}


def listings(protocol: str) -> Callable[[], str | None]:
    """Return a figure of the bytes of a listing, by history, for a protocol of git."""

    def figure() -> str | None:
        measured = {case: row for case, row in rows_of(bus_listings.STUDY).items() if case.endswith(protocol)}
        said = [
            f"{case.rpartition(', ')[0]}: {row['start']['bytes']:,} B for {row['runs of two days']} recent runs "
            f"(bound {row['bound bytes']:,}), whole {row['whole listing']['bytes']:,} B"
            for case, row in measured.items()
        ]
        return "; ".join(said) or None

    return figure


def flat() -> str | None:
    """Return the calls and bytes of each look over v2, smallest history beside the largest that was measured."""
    spread = [
        row for case, row in rows_of(bus_listings.STUDY).items() if "over 300 days, v2" in case
    ]  # in the order of their size
    if len(spread) < 2:
        return None
    said = []
    for look in ("start", "poll", "status", "ls", "claim", "request"):
        first, last = spread[0][look], spread[-1][look]
        calls = [sum(count for verb, count in one.items() if "bytes" not in verb) for one in (first, last)]
        both = [one["bytes"] + one.get("bytes sent", 0) for one in (first, last)]
        said.append(f"{look} {calls[0]} → {calls[1]} calls, {both[0]:,} → {both[1]:,} B listed")
    pushed = [row["push answered with bytes"] for row in (spread[0], spread[-1])]
    runs = [row["runs"] for row in (spread[0], spread[-1])]
    return (
        f"{runs[0]:,} → {runs[1]:,} runs: {'; '.join(said)}; each push is answered with {pushed[0]:,} → {pushed[1]:,} B"
    )


def delays() -> str | None:
    """Return what came of runs over a slow remote that loses calls."""
    rows = rows_of(bus_delays.STUDY)
    said = [
        f"{case}: {row['without a result']} without a result, {row['lost a lease']} lost a lease"
        for case, row in rows.items()
    ]
    return "; ".join(said) or None


def chaos() -> str | None:
    """Return what came of the requests whose runners were killed and stalled."""
    rows = list(rows_of(bus_chaos.STUDY).values())
    if not rows:
        return None
    lost, twice = (sum(row[name] for row in rows) for name in ("lost", "begun twice"))
    kills, stalls = (sum(row.get(name, 0) for row in rows) for name in ("kills", "stalls"))
    return f"{len(rows)} seeds, {kills} kills, {stalls} stalls: {lost} lost, {twice} begun twice"


def overhead() -> str | None:
    """Return what a run costs beside raw git, of the committed benchmarks."""
    document = json.loads((ROOT / "docs" / "evidence" / "benchmarks.json").read_text(encoding="utf-8"))
    figures = {one["name"]: one["value"] for one in document["results"].get("overhead", ())}
    if "overhead to floor" not in figures:
        return None
    return f"{figures['overhead to floor']:g}x, measured {document['host']['started'][:10]}"


def calls() -> str | None:
    """Return the git calls and the processor time of each side of a run, beside those of plain git."""
    for row in rows_of(bus_calls.STUDY).values():
        said = []
        for who, spent in row.items():
            counted = ", ".join(f"{count} {verb}" for verb, count in spent.items() if verb != "processor ms" and count)
            said.append(f"{who}: {counted}; {spent['processor ms']} ms of processor time")
        return "; ".join(said)
    return None


def service() -> str | None:
    """Return what a runner's process held early and late."""
    said = []
    for row in rows_of(bus_service.STUDY).values():
        early, late = row["second quarter"], row["last quarter"]
        held = ", ".join(f"{what} {early[what]:,.0f} → {late[what]:,.0f}" for what in early)
        said.append(f"{row['runs']} runs: {held}")
    return "; ".join(said) or None


def stored() -> str | None:
    """Return the repository's bytes for each run."""
    rows = rows_of(bus_listings.STUDY)
    return "; ".join(f"{case}: {row['repository bytes a run']:,} B" for case, row in rows.items()) or None


def fleet(study: Study) -> Callable[[], str | None]:
    """Return a figure of what came of the requests of a fleet."""

    def figure() -> str | None:
        measured = list(rows_of(study).values())
        if not measured:
            return None
        lost, twice = (sum(row[name] for row in measured) for name in ("lost", "run twice"))
        return f"{len(measured)} seeds: {lost} lost, {twice} run twice"

    return figure


def idle_pushes() -> str:
    """Return the pushes of an idle runner on a hosted remote, counted over six simulated hours."""
    with tempfile.TemporaryDirectory() as folder:
        moments = pushes.idle_moments(Path(folder) / "idle", IDLE_HOURS * 3600.0)
    an_hour = [sum(int(moment // 3600) == hour for moment in moments) for hour in {int(one // 3600) for one in moments}]
    return f"{len(moments)} in {IDLE_HOURS} simulated hours, at most {max(an_hour)} in one"


LINES = (
    proved(
        "40 kinds of hostile refs at once: a listed request starts within 3 polls and 40 git calls, clients work, each "
        "object is looked at once (file, ssh with and without AcceptEnv GIT_PROTOCOL, smart HTTP)",
        "bus",
        "40 kinds of hostile refs",
    ),
    Line("a listing over protocol v2: at most 200 B a run of the last two days and 20 KB", STUDIES, listings("v2")),
    Line("over v0 bytes follow the refs that exist", STUDIES, listings("v0")),
    proved(
        "a remote that lists all of its refs is named by doctor, with drop_after_days as remedy",
        "bus",
        "a remote that lists all of its refs",
    ),
    Line("status, ls, a poll, start and claim flat within 1.2x (v2)", STUDIES, flat),
    Line("repository bytes a run", STUDIES, stored),
    proved(
        "after archiving and git gc --prune=now on the remote every result still verifies, from v2 and v0 clients",
        "bus",
        "results after archiving and gc",
    ),
    Line("delay proxy 0-4 s, 1 % loss: all runs end with their result, no lease lost by slowness", STUDIES, delays),
    proved("old renewals pushed again keep no dead run alive", "bus", "old renewals pushed again"),
    Line(f"{bus_fleet.LARGE} in the tool: 0 lost, 0 twice", STUDIES, fleet(bus_fleet.LARGE_STUDY)),
    Line(f"{bus_fleet.SMALL} in the tool: 0 lost, 0 twice", STUDIES, fleet(bus_fleet.SMALL_STUDY)),
    Line("5 clients, 3 runners, 60 requests with real git, kills and stalls: 0 lost, 0 twice", STUDIES, chaos),
    proved("fair within 1.5x between verified principals", "bus", "fair between principals"),
    Line("overhead beside the raw git floor at most 2.0x", "make bench", overhead),
    Line(
        f"what is left of it, by git call ({PAGE} says what each is for)",
        f"{STUDIES} STUDY={bus_calls.STUDY.name}",
        calls,
    ),
    Line("service of 8 h compressed: RSS, descriptors, threads, disk flat", STUDIES, service),
    Line("an idle bus: at most 12 pushes an hour", "python -m benchmarks pushes", idle_pushes),
    proved(
        "a runner that is asked to end while its remote hangs in a listing, a fetch or a push ends within 5 s",
        "bus",
        "asked to end while the remote hangs",
    ),
    proved("three findings, each as the steps that showed it", "bus", "three findings"),
    own_tests.adds("bus"),
)
