"""A claim is what the gate gets from the raw rows, to the last digit, in the gate's own words.

The seed's headline was an arithmetic mean of rates that contained the warm-up prompt. What cannot be recomputed is not
claimed; a report that claims nothing cannot be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from bridge.gate.claims import drafts
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule("G4-CLAIM", remedy="Drop the claim, or state exactly the number and wording of `kakeya-mac gate check`.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    recomputed = {draft.metric: draft for draft in drafts(report, evidence)}
    claims = report.body["claims"]
    ids = [claim["id"] for claim in claims]
    metrics = [claim["metric"] for claim in claims]
    if len(set(ids)) != len(ids) or len(set(metrics)) != len(metrics):
        yield Violation(f"a claim is made twice: {sorted(ids)}", "/claims")
    for index, claim in enumerate(claims):
        where = f"/claims/{index}"
        draft = recomputed.get(claim["metric"])
        if draft is None or draft.value is None:
            yield Violation(f"{claim['metric']!r} cannot be recomputed from the raw rows of this report", where)
            continue
        if claim["id"] != draft.id:
            yield Violation(f"{claim['metric']!r} is claim {draft.id!r}, got id {claim['id']!r}", where)
        wanted = draft.value if draft.stated is None else draft.stated
        if not math.isclose(claim["value"], wanted, rel_tol=1e-6, abs_tol=1e-9):
            yield Violation(f"{claim['id']}: got {claim['value']!r}, the raw rows give {wanted!r}", where)
        if claim["unit"] != draft.unit:
            yield Violation(f"{claim['id']}: got unit {claim['unit']!r}, expected {draft.unit!r}", where)
        if tuple(claim["arms"]) != draft.arms:
            yield Violation(f"{claim['id']}: got arms {claim['arms']}, expected {list(draft.arms)}", where)
        if claim["wording"] is not None and claim["wording"] != draft.wording:
            yield Violation(f"{claim['id']}: the only wording is {draft.wording!r}, got {claim['wording']!r}", where)
