"""What the issue on evidence promises to show of premises: which rules guard which, and what committed results lack."""

from __future__ import annotations

from collections import Counter

from benchmarks.show import own_tests
from benchmarks.show.line import Line
from benchmarks.show.source import ROOT
from benchmarks.simulation.page import rows
from benchmarks.studies import forgeries
from bridge.client.connection.pins import Pins
from bridge.client.evidence.gate_files import Judged, judge_paths
from bridge.gate import rules_catalogue
from bridge.gate.declared.kind import kinds
from tests.gate_archive import digest_at, stored, table

EVIDENCE = ROOT / "docs" / "evidence"


def guarded() -> str:
    """Return how many rules guard each premise."""
    counts = Counter(entry.premise for entry in rules_catalogue())
    return f"{counts.total()} rules: {', '.join(f'{name} {count}' for name, count in counts.most_common())}"


def confirmed() -> str:
    """Return which kinds of report a recompute command confirms, and which it does not."""
    known = [name for name, kind in kinds().items() if kind.confirms]
    needing = [
        name for name, kind in kinds().items() if not kind.confirms and any("outputs" in m.needs for m in kind.metrics)
    ]
    return f"of {len(known)} of {len(known) + len(needing)} kinds that need it; not of {', '.join(needing) or 'none'}"


def judged_again() -> str:
    """Return what the gate here says of the committed results, and where that is not what is stored."""
    found = [
        one
        for one in judge_paths([EVIDENCE], lambda _folder: Pins())
        if isinstance(one, Judged) and one.record is not None
    ]
    decisions = Counter(one.verdict.decision for one in found)
    claims = Counter(claim.decision for one in found for claim in one.verdict.claims)
    said = ", ".join(f"{count} {name}" for name, count in decisions.items())
    of = ", ".join(f"{count} {name}" for name, count in claims.items())
    otherwise = "; ".join(f"{one.path.name} {one.otherwise}" for one in found if one.otherwise is not None)
    return f"{said} (claims: {of}); {otherwise or 'each as stored'}"


def archived() -> str:
    """Return at which commit the gate of each stored verdict is, its digest recomputed from the commit's sources."""
    found = [
        f"{digest[:12]} is commit {commit[:12]}" + ("" if digest_at(commit) == digest else ", WHOSE DIGEST IS ANOTHER")
        for digest, commit in table().items()
    ]
    missing = stored().keys() - table().keys()
    return "; ".join(found) + (f"; {len(missing)} NOT FOUND" if missing else "")


def forged() -> str | None:
    """Return how many coordinated cheats lost the premise that was written down before, through the real runner."""
    found = rows(forgeries.STUDY.name)
    whole = sum(row["profile"] == "claim" for row in found)
    return f"{forgeries.summary(found)}; {whole} of {len(forgeries.FULL)} at full size" if found else None


LINES = (
    Line(
        "a forgery workshop through the real runner: which premise fell is compared with a column written beforehand; "
        "the rest is named in docs/gate/forgeries.md; honest twins are not refused",
        "make studies AREA=evidence STUDY=forgeries",
        forged,
    ),
    Line("every existing rule guards a premise", "make show AREA=evidence", guarded),
    Line("outputs are computed again", "make show AREA=evidence", confirmed),
    Line("docs/evidence, judged again by this gate", "kakeya-mac gate check docs/evidence", judged_again),
    Line("older gates archived by digest", "python -m tests.gate_archive", archived),
    own_tests.adds("evidence"),
)
