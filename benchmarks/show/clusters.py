"""What the issue on clusters promises to show."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.show import own_tests
from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies import ray_runs, slurm_overhead, slurm_runs
from benchmarks.studies.report import report_of

AREA = "clusters"
STUDIES = "make studies AREA=clusters"
RAY = "KAKEYA_RAY=VENV/bin/ray make studies AREA=clusters STUDY=ray-runs"


def _rows(kind: str) -> list[dict[str, Any]]:
    """Return the rows of the newest entry of each case of a kind."""
    newest = {entry["case"]: entry for entry in report_of("clusters", slurm_runs.STUDY.name).entries()}
    return [row for case, entry in newest.items() if case.split()[0] == kind for row in entry["rows"]]


def _whole() -> str | None:
    newest = {entry["case"]: entry["rows"] for entry in report_of("clusters", slurm_runs.STUDY.name).entries()}
    here, there = newest.get("whole local"), newest.get("whole slurm")
    if not here or not there:
        return None
    same = all((a["reason"], a["decision"], a["rules"]) == (b["reason"], b["decision"], b["rules"])
               for a, b in zip(here, there, strict=True))  # fmt: skip
    return f"{len(there)} runs on Slurm, verdict {'the same' if same else 'another'} as local"


def _ended(kind: str, count: int) -> str | None:
    rows = _rows(kind)
    if not rows:
        return None
    left, once = sum(row["survivors"] for row in rows), sum(row["starts"] == 1 for row in rows)
    return f"{left} survivors, {once} of {len(rows)} begun once; {len(rows)} of {count} cases, Slurm"


def _overhead() -> str | None:
    entries = report_of("clusters", slurm_overhead.STUDY.name).entries()
    rows = [row for entry in {one["case"]: one for one in entries}.values() for row in entry["rows"]]
    if not rows:
        return None
    adds = {row["adds"]: [] for row in rows if "adds" in row}
    for row in rows:
        if "adds" in row:
            adds[row["adds"]].append(row["median_s"])
    first = [row["seconds"] for row in rows if row.get("first") == "node"]
    said = "; ".join(f"{what}: {', '.join(f'{one:.2f}' for one in found)} s" for what, found in adds.items())
    return f"{said}; first run of a node: {', '.join(f'{one:.1f}' for one in first)} s"


def _ray() -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the newest entry of each case on Ray."""
    return {entry["case"]: entry["rows"] for entry in report_of("clusters", ray_runs.STUDY.name).entries()}


def _whole_ray() -> str | None:
    here, there = _ray().get("whole local"), _ray().get("whole ray")
    if not here or not there:
        return None
    same = all((a["reason"], a["decision"], a["rules"]) == (b["reason"], b["decision"], b["rules"])
               for a, b in zip(here, there, strict=True))  # fmt: skip
    return f"{len(there)} runs on Ray, verdict {'the same' if same else 'another'} as local"


def _ended_ray(kind: str) -> str | None:
    rows = [row for case, found in _ray().items() if case.split()[0] == kind for row in found]
    if not rows:
        return None
    left, once = sum(row["survivors"] for row in rows), sum(row["starts"] == 1 for row in rows)
    lost = sum(bool(row.get("lost")) for row in rows)
    return f"{left} survivors, {lost} lost, {once} of {len(rows)} begun once"


def _faults_ray() -> str | None:
    rows = [row for case, found in _ray().items() if case.split()[0] == "fault" for row in found]
    said = [f"{row['case']}: {row['reason']}, begun {row['starts']}, {row['survivors']} left" for row in rows]
    return "; ".join(said) or None


def _many() -> str | None:
    rows = _rows("many")
    if not rows:
        return None
    row = rows[-1]
    return (
        f"{row['ended']} of {row['sent']} ended, {row['started_once']} begun once, at most {row['most_at_once']} on "
        f"{row['slots']} slots, out of order by {row['most_places_out_of_order']} at most"
    )


def _killed() -> str | None:
    rows = _rows("kill")
    if not rows:
        return None
    lost, repeated = sum(row["lost"] for row in rows), sum(row["starts"] != 1 for row in rows)
    followed = sum(row["followed"] for row in rows)
    return f"{lost} lost, {repeated} repeated, {followed} re-attached; {len(rows)} of {slurm_runs.KILLS} moments"


def _fault(*names: str) -> str | None:
    rows = {row["case"]: row for row in _rows("fault") if row["case"] in names}
    if not rows:
        return None
    return "; ".join(
        f"{name}: {row['reason']}, begun {row['starts']}, {row['survivors']} left" for name, row in rows.items()
    )


def _spread() -> str | None:
    rows = _rows("spread")
    if not rows:
        return None
    nodes = sorted({row["ran_on"] for row in rows if row.get("ran_on")})
    return f"{len(rows)} requests over {', '.join(nodes)}"


def _sweep() -> str | None:
    rows = [row for row in _rows("sweep") if "node" in row]
    if not rows:
        return None
    nodes, classes = (sorted({str(row[name]) for row in rows}) for name in ("node", "host_class"))
    across = sum(row.get("differences_across_classes", 0) for row in _rows("sweep"))
    said = f"{len(rows)} requests over {', '.join(nodes)}; classes: {', '.join(f'[{one}]' for one in classes)}"
    return f"{said}; {across} differences across classes"


def _compared() -> str | None:
    rows = [row for row in _rows("sweep") if "compare" in row]
    said = [f"citable: {row['citable']}, because {'; '.join(row['why'])}" for row in rows]
    return "; ".join(said) or None


def _labelled() -> str | None:
    newest = {entry["case"]: entry["rows"] for entry in report_of("clusters", slurm_runs.STUDY.name).entries()}
    here, there = newest.get("labelled local"), newest.get("labelled slurm")
    if not here or not there:
        return None
    judged = ("preset", "exit_code", "reason", "claims", "answer")
    return "; ".join(
        f"{b['preset']} on the node {b['label']}: {b['reason']}, "
        f"{'the same' if all(a[one] == b[one] for one in judged) else 'another'} verdict as at home"
        for a, b in zip(here, there, strict=True)
    )


def _doctor() -> str | None:
    rows = _rows("doctor")
    return "; ".join(f"{row['name']}: {row['level']}, {row['text']}" for row in rows) or None


def _fault_line(text: str, *names: str) -> Line:
    return Line(text, STUDIES, partial(_fault, *names))


LINES = (
    Line("whole request → result over a git remote on each engine, gate verdict the same as local", STUDIES, _whole),
    Line("shared folder checked by `doctor` (write here, read there, same uid, clock skew)", STUDIES, _doctor),
    Line("overhead over the engine's own `srun true` ≤ 1.0 s + the sandbox trial once a node", STUDIES, _overhead),
    Line("timeout, cancel, double fork, setsid, SIGTERM ignored: 0 survivors", STUDIES, partial(_ended, "hostile", 5)),
    proved("limits and redaction identical", AREA, "limits and redaction"),
    Line("200 requests on 2 nodes' worth of slots: none lost, none twice, order and capacity kept", STUDIES, _many),
    Line("runner killed -9 at 20 random moments: re-attached, 0 lost, 0 repeated", STUDIES, _killed),
    _fault_line("slurmctld stopped and started mid-run", "controller-restarted"),
    _fault_line("node down", "node-killed"),
    _fault_line("job requeued: attempt counted, never two results", "requeued"),
    _fault_line("scancel from outside", "scancel-queued", "scancel-running"),
    _fault_line("engine unreachable at submit", "controller-away-at-submit"),
    _fault_line("job preempted", "preempted"),
    _fault_line("disk full on the shared folder", "disk-full"),
    _fault_line("SIGKILL of the node process under linuxproc", "supervisor-killed"),
    _fault_line("unknown label", "no-node-has-it"),
    _fault_line("longest wait reached", "longest-wait"),
    _fault_line("cancelled while queued, its place shown before", "cancelled-while-queued"),
    proved("engine says done and no result is there: interrupted", AREA, "done without a result"),
    proved("kill between submit and journal", AREA, "kill between submit and journal"),
    proved("engine that forgot the job: the folder decides", AREA, "an engine that forgot"),
    proved("an engine that is slow to answer keeps no run from its end", AREA, "an engine that is slow"),
    proved("everything submitted as an unprivileged user", AREA, "root submits nothing"),
    Line("requests go to nodes by label, and over all nodes without", STUDIES, _spread),
    Line("a sweep of 24 requests spreads over the nodes, and its rows carry node and host class", STUDIES, _sweep),
    Line("`compare` across host classes answers as at home: nothing may be quoted", STUDIES, _compared),
    Line("a workload and k3-fused-allmlx-code on a labelled node are judged as at home", STUDIES, _labelled),
    proved("`once --ephemeral` leaves nothing, killed or not", AREA, "once --ephemeral"),
    Line("Ray in a venv of its own: whole request → result, verdict the same as local", RAY, _whole_ray),
    Line("the same on Ray: timeout, cancel, double fork, setsid, SIGTERM ignored", RAY, partial(_ended_ray, "hostile")),
    Line("the same on Ray: runner killed -9 at 20 random moments", RAY, partial(_ended_ray, "kills")),
    Line("the same on Ray: faults, with a stop on the dashboard and a head that forgot everything", RAY, _faults_ray),
    proved("a page that says when which is right: docs/guides/clusters.md", AREA, "the guide page"),
    own_tests.adds("clusters"),
)
