"""The page of coordinated cheats: the column that was written before, and what the study saw."""

from __future__ import annotations

from benchmarks.studies.claims.forgeries import FULL, STUDY, WHOLE, summary
from benchmarks.studies.report import report_of
from benchmarks.studies.study import Row, rows_of
from tests.integration.gate.lies import LIES

HEAD = """# Coordinated cheats

Each is a workload that lies in everything it says itself: report, marks, answers, files. It runs through the real
runner, beside an honest twin of the same preset, with a stand-in for the engine whose recompute and reference commands
are the host's and never lie. The premise that must fall was written down first, in `tests/integration/gate/lies`;
"fell" is what rules took from it and not from the twin. `make studies STUDY=forgeries` goes on where it
stopped; an empty cell is a cheat that was not told yet.
"""
UNSEEN = """
## What no rule sees

Each of these passes every rule. Whoever runs code of a stranger reads this list first: all of it rests on the premise
`code`, that the program is the one that it is called. Of a patched library the runner of a claim names the files that
are not what was installed, and those that were added ([ADR 50](../adr/0050-altered-packages.md)); of one that was
patched together with its RECORD it sees nothing.
"""


def generate() -> dict[str, str]:
    """Return the page by path."""
    entries = report_of(STUDY.name).entries()
    rows = {(row["profile"], row["forgery"]): row for row in rows_of(entries)}
    lines = [HEAD, *summary(entries), ""]
    lines += ["| cheat | must fall | fell | by | class | as written |", "|---|---|---|---|---|---|"]
    lines += [_line(name, LIES[name].fell, rows.get(("smoke", name))) for name in LIES if not LIES[name].unseen]
    lines += ["", "At the full size of a claim:", "", "| cheat | must fall | fell | by | class | as written |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [_line(f"{WHOLE}{name}", LIES[name].fell, rows.get(("claim", name))) for name in FULL]
    missed = {name: LIES[name].missed for (_, name), row in rows.items() if not row["as_written"]}
    if missed:
        lines += ["", "Not as it was written:", "", "| cheat | why |", "|---|---|"]
        lines += [f"| {name} | {why or 'not known yet'} |" for name, why in missed.items()]
    lines += [UNSEEN, "| cheat | why | fell |", "|---|---|---|"]
    lines += [
        f"| {name} | {lie.unseen} | {_fell(rows.get(('smoke', name)))} |" for name, lie in LIES.items() if lie.unseen
    ]
    return {"docs/gate/forgeries.md": "\n".join(lines) + "\n"}


def _line(name: str, expected: str, row: Row | None) -> str:
    if row is None:
        return f"| {name} | {expected or 'none'} | | | | |"
    as_written = "yes" if row["as_written"] else "NO"
    return (
        f"| {name} | {expected or 'none'} | {_fell(row)} | {' '.join(row['by'])} | {row['decision']} | {as_written} |"
    )


def _fell(row: Row | None) -> str:
    return "" if row is None else " ".join(row["fell"]) or "none"
