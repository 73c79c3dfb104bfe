"""Cost of verifying and drafting: its claims and its rules."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator

from bridge.gate.claims import CONFIDENCE, ClaimDraft
from bridge.gate.facts.roofline import forward_rate, most_flops
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import VERIFY_COST
from bridge.gate.rule import report_rule
from bridge.gate.stats.ratio import paired_ratio


def recompute(report: Report, _evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the cost of L rows over that of one, per context; the longest context at eight rows is the primary one."""
    verify = report.body["rows"]["verify"]
    single = {row["context_tokens"]: row["seconds"] for row in verify if row["rows"] == 1}
    last = max(single, default=0)
    widest = max((row["rows"] for row in verify if row["context_tokens"] == last and row["rows"] <= 8), default=0)
    for row in verify:
        context, size = row["context_tokens"], row["rows"]
        if size == 1 or context not in single or len(row["seconds"]) != len(single[context]) or len(row["seconds"]) < 2:
            continue
        ratio = paired_ratio(row["seconds"], single[context])
        low, high = ratio.interval(CONFIDENCE)
        name = f"verify_{size}_at_{context}"
        yield ClaimDraft.of_ratio(
            name,
            "primary" if (context, size) == (last, widest) else "secondary",
            ratio,
            f"verifying {size} rows after {context} tokens costs {ratio.value:.2f} times decoding one "
            f"[{low:.2f}, {high:.2f}] 95 %, {ratio.n} repeats",
        )
    yield from _drafts(report)


def _drafts(report: Report) -> Iterator[ClaimDraft]:
    for row in report.body["rows"]["draft"]:
        seconds, name = row["seconds"], f"draft_{row['drafted_tokens']}_at_{row['context_tokens']}"
        yield ClaimDraft(
            id=name,
            role="secondary",
            value=statistics.fmean(seconds),
            unit="s",
            n=len(seconds),
            wording=(
                f"drafting {row['drafted_tokens']} tokens after {row['context_tokens']}: "
                f"mean {statistics.fmean(seconds) * 1e3:.3f} ms"
            ),
        )


@report_rule("G4-COSTS", "ratio", kinds=(VERIFY_COST,), remedy="Use `kakeya-engine eval verify-cost`, unchanged rows.")
def require_balanced_costs(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    """Cost rows are distinct, equally repeated within a context, and fit into the report's wall time.

    Every length is measured as often as the one it is compared with, in turn.
    """
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
    for context, seconds in (
        *((one["context_tokens"], one["seconds"]) for one in rows["verify"]),
        *((one["context_tokens"], one["seconds"]) for one in rows["draft"]),
    ):
        repeats.setdefault(context, set()).add(len(seconds))
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
    listed = (
        ("verify", [(row["context_tokens"], row["rows"]) for row in rows["verify"]]),
        ("draft", [(one["context_tokens"], one["drafted_tokens"]) for one in rows["draft"]]),
    )
    for name, places in listed:
        if places != sorted(places):
            yield Violation(f"{name} rows are not in order of context and length", f"/rows/{name}")
    spent_s = sum(sum(row["seconds"]) for row in (*rows["verify"], *rows["draft"]))
    if spent_s > report.body["wall_s"] + 0.01:
        yield Violation(f"{spent_s:.3f} s of forwards do not fit into {report.body['wall_s']:.3f} s", "/rows")


@report_rule(
    "G5-COSTS",
    "ratio",
    severity="violation",
    kinds=(VERIFY_COST,),
    remedy="Raise --repeats; measure on a quiet machine.",
)
def bound_cost_spread(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A cost is repeated often enough and its repeats agree.

    A ratio of two noisy medians is a noisy number; the spread of the repeats decides whether it may be quoted. No clock
    gives every repeat the same time, and no machine computes a forward in less than its multiplications take.
    """
    least, most = int(evidence.profile["cost_repeats_min"]), float(evidence.profile["cost_spread_mad_max"])
    for index, row in enumerate(report.body["rows"]["verify"]):
        seconds, where = row["seconds"], f"/rows/verify/{index}"
        if len(seconds) < least:
            yield Violation(f"{len(seconds)} repeats, at least {least} are asked", where)
        middle = statistics.median(seconds)
        spread = 1.4826 * statistics.median(abs(math.log(value / middle)) for value in seconds)
        if spread > most:
            yield Violation(f"robust spread of the repeats is {spread:.3f}, at most {most}", where)
        low, high = min(seconds), max(seconds)
        if high / low > float(evidence.profile["cost_ratio_max"]):
            yield Violation(f"identical work took {low:.2e} to {high:.2e} s", where)
        if len(seconds) > 1 and low == high:
            yield Violation(f"{len(seconds)} repeats took {low!r} s each: no clock says that", where, severity="reject")
        rate = forward_rate(report, evidence, row["rows"], low)
        if rate > most_flops(report, evidence):
            yield Violation(f"a forward in {low:.2e} s is beyond this machine", where, severity="reject")
