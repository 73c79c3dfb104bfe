"""The claim of a comparison of two commits: is the head slower, and does a second pass say so too."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import Draft, generation
from bridge.gate.claims.speed import CONFIDENCE, noise_floor, paired_times
from bridge.gate.interface import Evidence, Report
from bridge.gate.sampled import Arms, arms_of, within
from bridge.gate.stats.ratio import Ratio


def drafts(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield base over head: below 1 the head is slower; slower is said only when every pass says it."""
    arms, passes = arms_of(report, evidence), report.body["rows"]["passes"]
    margin = float(report.body["config"]["slower_margin"])
    whole = paired_times(arms, "decode_s")
    each = [ratio_of(arms, set(launches)) for launches in passes]
    if whole is None or any(one is None for one in each) or arms.candidate is None or not arms.reference:
        return
    try:
        ratio = whole.ratio()
    except ValueError:
        return
    low, high = ratio.interval(CONFIDENCE)
    slower = [one for one in each if one is not None and one.interval(CONFIDENCE)[1] < 1.0 - margin]
    if len(slower) == len(each) and len(each) > 1:
        said = f"head is slower than base by more than {margin * 100:.0f} %, confirmed by a second pass"
    elif slower:
        said = f"not confirmed: one of {len(each)} passes found head slower by more than {margin * 100:.0f} %"
    elif ratio.interval(0.90)[0] >= 1.0 - margin and ratio.interval(0.90)[1] <= 1.0 + margin:
        said = f"head and base are equivalent within {margin * 100:.0f} %"
    elif ratio.lower(0.95) >= 1.0 - margin:
        said = f"head is not slower than base ({margin * 100:.0f} % margin)"
    else:
        said = "no difference shown"
    yield Draft(
        id="decode_speedup",
        metric="decode_speedup",
        role="primary",
        value=ratio.value,
        interval=(low, high),
        confidence=CONFIDENCE,
        unit="ratio",
        n=ratio.n,
        baseline=report.body["config"]["base_commit"][:12],
        arms=(arms.candidate.name, *(arm.name for arm in arms.reference)),
        stops=_earlier(evidence),
        wording=f"{said}: {ratio.value:.3f}x [{low:.3f}, {high:.3f}] 95 %, {ratio.n} prompts",
        detail={
            "slower": len(slower) == len(each) and len(each) > 1,
            "passes": len(each),
            "slower_passes": len(slower),
            "noise_floor": noise_floor(arms, evidence.profile),
            "same_code": _same_code(report),
            "summary": f"{said}: {ratio.value:.3f}x [{low:.3f}, {high:.3f}] 95 %",
        },
    )
    yield from generation.identity(report, evidence)


def _earlier(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.earlier:
        return ()
    return (f"{len(evidence.earlier)} earlier attempts at these commits: a decision by passes is not pooled",)


def _same_code(report: Report) -> bool:
    trees = report.body["rows"]["trees"]
    return bool(trees["base"]["sources_sha256"] == trees["head"]["sources_sha256"])


def ratio_of(arms: Arms, launches: set[int]) -> Ratio | None:
    """Return base over head within some launches, None where there are too few rows."""
    paired = paired_times(within(arms, launches), "decode_s")
    try:
        return None if paired is None else paired.ratio()
    except ValueError:
        return None
