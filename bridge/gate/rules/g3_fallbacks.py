"""Fallbacks are counted where they happened: a known arm, a known sample, no more than its steps.

The seed's `fallbacks_taken` was a literal empty list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Sample, arms_of, expected_drafts


@report_rule(
    "G3-FALLBACKS", kinds=kinds.SAMPLED, remedy="Let the decoding loop report what it skipped or refused, and why."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    samples = {s["id"]: (arm.name, s) for arm in arms_of(report, evidence).all for s in arm.samples}
    places: list[tuple[int, int]] = []
    counts: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, str, str]] = set()
    for index, row in enumerate(report.body["fallbacks"]):
        where = f"/fallbacks/{index}"
        home = samples.get(row["sample"])
        if home is None or home[0] != row["arm"]:
            yield Violation(f"sample {row['sample']!r} of arm {row['arm']!r} is not in the report", where)
            continue
        places.append((home[1]["launch"], home[1]["order_index"]))
        key = (row["sample"], row["component"], row["reason"])
        if key in seen:
            yield Violation("counted twice", where)
        seen.add(key)
        if row["component"] not in {"drafter", "target", "graphs"}:
            yield Violation(f"unknown component {row['component']!r}", where)
        counts[row["sample"], row["component"]] += row["count"]
    if places != sorted(places):
        yield Violation("fallbacks are not in running order", "/fallbacks")
    for name, (_, sample) in samples.items():
        yield from _against_steps(name, sample, counts, report.body["config"])


def _against_steps(
    name: str, sample: Sample, counts: Counter[tuple[str, str]], config: Mapping[str, Any]
) -> Iterator[Violation]:
    drafted = sample["drafted_per_step"] or ()
    wanted = expected_drafts(sample, config)
    if wanted is None:  # the policy itself may choose not to draft
        idle = sum(1 for count in drafted if count == 0)
        if counts[name, "drafter"] > idle:
            yield Violation(f"{counts[name, 'drafter']} steps fell back, {idle} drafted nothing", name)
    else:
        idle = sum(1 for count, asked in zip(drafted, wanted, strict=True) if count == 0 < asked)
        if counts[name, "drafter"] != idle:
            yield Violation(f"{idle} steps drafted nothing, {counts[name, 'drafter']} are counted", name)
    # One more of either may have been queued ahead of the last token.
    forwards = sample["counters"]["target_forwards"] + sample["counters"]["drafter_forwards"] + 2
    if counts[name, "graphs"] > forwards:
        yield Violation(f"{counts[name, 'graphs']} forwards fell back, {forwards} ran", name)
    refused = sample["counters"]["guard_rejections"]
    if counts[name, "target"] != refused:
        yield Violation(f"{refused} rows were refused by the guard, {counts[name, 'target']} are counted", name)
