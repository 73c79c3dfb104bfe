"""What the issue on the executor promises to show of the sandbox."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies import hog_leases
from benchmarks.studies.escapes.situations import SITUATIONS
from benchmarks.studies.hogs import cases
from benchmarks.studies.report import FOLDER, ROOT, report_of

STUDIES = "make studies AREA=executor"


def escapes(folder: Path = FOLDER) -> str | None:
    """Return how many probes were tried in each situation and what reached the host, from the committed report."""
    rows = {entry["case"]: entry["rows"][0] for entry in report_of("executor", "escapes", folder).entries()}
    if not rows:
        return None
    tried = ", ".join(f"{name} {rows[name]['probes']}" for name in SITUATIONS if name in rows)
    missing = [name for name in SITUATIONS if name not in rows]
    reached = [f"{name}: {what}" for name, row in rows.items() for what in row["reached"]]
    return (
        f"{len(reached)} reach the host; probes: {tried}"
        + (f"; {'; '.join(reached)}" if reached else "")
        + (f"; not tried yet: {', '.join(missing)}" if missing else "")
    )


def holes(folder: Path = FOLDER) -> str | None:
    """Return how the tests that dig holes and ask `doctor` ended, from the committed report."""
    entries = report_of("executor", "planted-holes", folder).entries()
    return entries[-1]["rows"][0]["outcome"] if entries else None


def two_users(folder: Path = FOLDER) -> str | None:
    """Return how the set-ups with real users ended, from the committed report."""
    entries = report_of("executor", "two-users", folder).entries()
    return entries[-1]["rows"][0]["outcome"] if entries else None


def hogs(folder: Path = FOLDER) -> str | None:
    """Return the slowest end of each kind of hog, its neighbour's least share, and what was left, from the report."""
    entries = report_of("executor", "hogs", folder).entries()
    slowest: dict[str, float] = {}
    left = []
    for entry in entries:
        row, hog = entry["rows"][0], entry["case"].partition(",")[0]
        if row["seconds_to_end"] is not None:
            slowest[hog] = max(slowest.get(hog, 0.0), row["seconds_to_end"] - row["of_them_waiting"])
        left += [f"{entry['case']}: {what}" for what in (*row["left"], *(["survivors"] if row["survivors"] else []))]
    if not entries:
        return None
    said = ", ".join(f"{hog} {seconds:.1f} s" for hog, seconds in slowest.items())
    shares = [(entry["rows"][0]["neighbour_processors"], entry["case"]) for entry in entries]
    said += "; a neighbour with one thread had at least {:.2f} of a processor ({})".format(*min(shares))
    open_cases = len(cases()) - len({entry["case"] for entry in entries})
    return f"{said}; left: {'; '.join(left) or 'nothing'}" + (f"; not run yet: {open_cases}" if open_cases else "")


def leases(folder: Path = FOLDER) -> str | None:
    """Return in how many runs beside a hog of the same runner the lease held, from the committed report."""
    rows = [row for entry in report_of("executor", hog_leases.STUDY.name, folder).entries() for row in entry["rows"]]
    if not rows:
        return None
    held, renewals = (sum(row[name] for row in rows) for name in ("held", "renewals"))
    longest_s = max(row["longest_s"] for row in rows)
    return (
        f"{held} held beside {len(rows)} hogs, {renewals} renewals, at most {longest_s:.1f} s "
        f"apart at a lease of {hog_leases.LEASE_S:.0f} s; not run yet: {len(hog_leases.cases()) - len(rows)}"
    )


def exposure() -> str | None:
    """Return what systemd says of the units that set-up writes, None where its program is missing."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return None
    said = []
    for name, unit, golden in UNITS:
        with tempfile.TemporaryDirectory() as top:
            folder = Path(top, "etc/systemd/system")
            folder.mkdir(parents=True)
            (folder / unit).write_text((GOLDEN / f"{golden}.txt").read_text())
            command = [program, "security", "--offline=yes", f"--root={top}", "--no-pager", unit]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        level = re.search(r"exposure level for [^:]+: ([\d.]+)", done.stdout)
        said.append(f"{name} {level[1] if level else 'unknown'}")
    return ", ".join(said)


UNITS = (
    ("runner", "kakeya-runner.service", "linux-unit"),
    ("run", "kakeya-run@.service", "linux-run-unit"),
    ("run with --job-user", "kakeya-run@.service", "linux-job-user-run-unit"),
)
GOLDEN = ROOT / "tests" / "integration" / "setup" / "golden"
LINES = (
    Line(
        "≥ 200 probes as each kind of run (root runner, other uid, same uid, request code, peer): 0 reach the host",
        STUDIES,
        escapes,
    ),
    Line(
        "planted holes (allow-list over the key, missing mask, uid 0 mapped) are found by `doctor`",
        "python -m pytest -q tests/integration/executor/test_private_paths.py -k planted_hole",
        holes,
    ),
    Line(
        "hogs at default bounds, with and without cgroup controllers: ended ≤ 2 s after the limit, a one-threaded "
        "neighbour keeps its fair share, 0 left",
        STUDIES,
        hogs,
    ),
    Line("leases of other runs held beside them", STUDIES, leases),
    Line(
        "two users really separated in an overlay root: install, check, break, undo",
        "python -m pytest -q -m slow tests/integration/setup/test_two_users.py",
        two_users,
    ),
    Line("`systemd-analyze security --offline`: runner ≤ 2, run unit ≤ 4.5", "make show AREA=executor", exposure),
    proved(
        "bwrap starts with `--proc` under each protection the units set",
        "executor",
        "a sandbox under each protection of the units",
    ),
)
