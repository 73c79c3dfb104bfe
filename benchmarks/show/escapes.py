"""What the issue on the executor promises to show of the sandbox."""

from __future__ import annotations

from pathlib import Path

from benchmarks.show.line import Line
from benchmarks.studies.escapes.situations import SITUATIONS
from benchmarks.studies.report import FOLDER, report_of

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


LINES = (
    Line(
        "≥ 200 probes as each kind of run (root runner, other uid, same uid, request code, peer): 0 reach the host",
        STUDIES,
        escapes,
    ),
    Line(
        "planted holes (allow-list over the key, missing mask, uid 0 mapped) are found by `doctor`",
        "python -m pytest -q tests/integration/executor/test_private_paths.py -k planted_hole",
    ),
)
