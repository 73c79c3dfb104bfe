"""Cost rows are distinct, equally repeated within a context, and fit into the report's wall time.

Every length is measured as often as the one it is compared with, in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule("G4-COSTS", kinds=(kinds.VERIFY_COST,), remedy="Use `kakeya-engine eval verify-cost`, unchanged rows.")
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    rows = report.body["rows"]
    verify = Counter((row["context_tokens"], row["rows"]) for row in rows["verify"])
    draft = Counter((row["context_tokens"], row["drafted_tokens"]) for row in rows["draft"])
    for key, count in (*verify.items(), *draft.items()):
        if count > 1:
            yield Violation(f"{key[1]} after {key[0]} tokens occurs {count} times", "/rows")
    contexts: dict[int, set[int]] = {}
    repeats: dict[int, set[int]] = {}
    for row in rows["verify"]:
        contexts.setdefault(row["context_tokens"], set()).add(row["rows"])
    for row in (*rows["verify"], *rows["draft"]):
        repeats.setdefault(row["context_tokens"], set()).add(len(row["seconds"]))
    if len({frozenset(sizes) for sizes in contexts.values()}) > 1 or any(1 not in sizes for sizes in contexts.values()):
        yield Violation(f"lengths differ between contexts, or 1 is absent: {contexts}", "/rows/verify")
    asked = {(row["context_tokens"], row["rows"] - 1) for row in rows["verify"] if row["rows"] > 1}
    strangers = set(draft) - asked
    if strangers:
        yield Violation(f"drafts that belong to no block: {sorted(strangers)}", "/rows/draft")
    if len({sum(1 for context, _ in draft if context == one) for one in contexts}) > 1:
        yield Violation("draft lengths differ between contexts", "/rows/draft")
    if any(len(found) > 1 for found in repeats.values()) or len({n for found in repeats.values() for n in found}) > 1:
        yield Violation(f"lengths were not repeated equally often: {repeats}", "/rows")
    for name, length in (("verify", "rows"), ("draft", "drafted_tokens")):
        places = [(row["context_tokens"], row[length]) for row in rows[name]]
        if places != sorted(places):
            yield Violation(f"{name} rows are not in order of context and length", f"/rows/{name}")
    spent_s = sum(sum(row["seconds"]) for row in (*rows["verify"], *rows["draft"]))
    if spent_s > report.body["wall_s"] + 0.01:
        yield Violation(f"{spent_s:.3f} s of forwards do not fit into {report.body['wall_s']:.3f} s", "/rows")
