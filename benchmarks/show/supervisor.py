"""What the issue on the executor promises to show of runs that outlive their runner."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies import runner_kills, supervisor_cost, supervisor_overhead
from benchmarks.studies.report import report_of

STUDIES = "make studies AREA=executor"


def _done(kinds: tuple[str, ...]) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of the newest entry of each case of these kinds, and how many cases there are."""
    cases = [case for case in runner_kills.cases() if case.split()[0] in kinds]
    newest = {entry["case"]: entry for entry in report_of("executor", runner_kills.STUDY.name).entries()}
    return [row for case in cases if case in newest for row in newest[case]["rows"]], len(cases)


def below_the_lease() -> str | None:
    """Return lost and repeated runs for downtimes below the lease."""
    rows, of = _done(("point", "moment"))
    if not rows:
        return None
    lost, repeated = sum(row["lost"] for row in rows), sum(row["starts"] != 1 for row in rows)
    twice, left = sum(row["ended_twice"] for row in rows), sum(row["left"] for row in rows)
    return f"{lost} lost, {repeated} repeated, {twice} ended twice, {left} processes left; {len(rows)} of {of} cases"


def beyond_the_lease() -> str | None:
    """Return the ends of runs whose runner was away for longer."""
    rows, of = _done(("away",))
    if not rows:
        return None
    once = sum(not row["ended_twice"] and row["starts"] == 1 for row in rows)
    kept = sum(row["kept_late"] for row in rows)
    return f"{once} with exactly one end, {kept} kept on the host; {len(rows)} of {of} cases"


def killed_supervisors() -> str | None:
    """Return the endings of runs whose supervisor was killed."""
    rows, of = _done(("supervisor",))
    if not rows:
        return None
    ended = sum(row["reason"] == "infrastructure" and row["starts"] == 1 and row["left"] == 0 for row in rows)
    return f"{ended} ended as infrastructure with nothing left; {len(rows)} of {of} cases"


def cost() -> str | None:
    """Return the processor time of supervisors."""
    newest = {entry["case"]: entry for entry in report_of("executor", supervisor_cost.STUDY.name).entries()}
    if not newest:
        return None
    found = {case: [row["cpu_s"] * 1e3 for row in entry["rows"]] for case, entry in newest.items()}
    return "; ".join(f"{case}: median {median(ms):.0f} ms, most {max(ms):.0f}" for case, ms in found.items())


def overhead() -> str | None:
    """Return the medians from request to result, and the interval of their difference over turns."""
    pairs = [
        (before, now)
        for entry in report_of("executor", supervisor_overhead.STUDY.name).entries()
        for before, now in zip(*(row["seconds"] for row in entry["rows"]), strict=True)
    ]
    if not pairs:
        return None
    before, now = (median(seconds) for seconds in zip(*pairs, strict=True))
    differences = [pair[1] - pair[0] for pair in pairs]
    drawn = random.Random(0)
    medians = sorted(median(drawn.choices(differences, k=len(differences))) for _ in range(2000))
    low, high = medians[50] * 1e3, medians[-51] * 1e3
    return (
        f"before {before * 1e3:.0f} ms, now {now * 1e3:.0f} ms; median difference {median(differences) * 1e3:+.0f} ms "
        f"[{low:+.0f}, {high:+.0f}] 95 %, {len(pairs)} turns"
    )


SHOWN = {
    'kill between "journalled" and "started"': "kill between journalled and started",
    "sandbox killed from outside, OOM, supervisor killed: log and report kept, never `not_started` of what ran": (
        "kill -9 of the supervisor, sandbox killed, OOM"
    ),
    "`pip install -U` in mid-run": "the package replaced in mid-run",
    "`systemctl restart` and `launchctl kickstart -k` by golden files and a stub": "restart by systemctl and launchctl",
    "`stop`, `stop --runs`, `drain [--now]`": "stop, stop --runs, drain, drain --now",
    "without systemd subuid ranges, or refused by name": "runs of an ordinary user as users of its range",
    "a run's unit: a user of its own, its own folders, the same endings": "a run behind a service manager's socket",
}
LINES = (
    Line(
        "kill -9 of the runner at every journal point and at 100 random moments, on one- and two-runner buses: 0 lost "
        "and 0 repeated for downtimes below the lease",
        STUDIES,
        below_the_lease,
    ),
    Line("beyond the lease exactly one end", STUDIES, beyond_the_lease),
    Line("kill -9 of the supervisor", STUDIES, killed_supervisors),
    *(proved(text, "executor", case) for text, case in SHOWN.items()),
    Line("supervisor ≤ 60 ms of processor time a run", STUDIES, cost),
    Line("request→result overhead not above that before runs had supervisors", STUDIES, overhead),
)
