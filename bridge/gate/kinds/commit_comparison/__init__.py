"""Speed of two commits: its claims and its rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bridge.gate.claims import CONFIDENCE, ClaimDraft, generation
from bridge.gate.claims.speed import least_of, loads_of, noise_floor, stops_of, time_ratio, unseen
from bridge.gate.facts.launch_series import SeriesRatio, series_of, series_ratio
from bridge.gate.facts.samples import Arms, arms_of, within
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import COMMIT_COMPARISON
from bridge.gate.rule import report_rule
from bridge.gate.stats.ratio import Ratio
from bridge.launches import wording
from bridge.launches.attempts import ShownInterval
from bridge.launches.figures import outward
from bridge.launches.stopping import MODELS
from bridge.records.verdict import Premise


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield base over head: below 1 the head is slower, and slower is said only by more than the margin.

    Where turns were handed out their stamps decide, over launches; otherwise every pass has to say it.
    """
    series = series_ratio(report, evidence)
    yield from _over_passes(report, evidence) if series is None else [_over_launches(report, evidence, series)]
    yield from generation.identity(report, evidence)


def _over_launches(report: Report, evidence: Evidence, found: SeriesRatio) -> ClaimDraft:
    """Return the ratio of the turns that the supervisor stamped."""
    own, bounds, pooled = series_of(report, evidence), found.shown, found.pooled
    margin = float(report.body["config"]["slower_margin"])
    slower = bounds.high < 1.0 - margin
    words = found.words(evidence, MODELS.least if own is None else least_of(own))
    verdict = f"head is slower than base by more than {margin * 100:.0f} %" if slower else _not_slower(bounds, margin)
    rest = found.spoilt + ("" if own is None else unseen(report, evidence, own))
    said = words.number if words.interval is None else f"{verdict}: {words.number}"
    return ClaimDraft(
        id="decode_speedup",
        role="primary",
        value=bounds.value,
        interval=words.interval,
        confidence=None if words.interval is None else CONFIDENCE,
        unit="ratio",
        n=pooled.launches,
        wording=f"{words.place}: {said}, both as identified{rest}",
        baseline=report.body["config"]["base_commit"][:12],
        arms=() if own is None else own.plan.arms[::-1],
        stops=stops_of(words),
        detail={
            "slower": slower and words.interval is not None,
            "effect": words.effect if words.interval is None else _effect(bounds, slower=slower),
            "over": "launches",
            "attempts": pooled.sittings,
            "looks": found.looks,
            "half_width": bounds.half_width,
            "same_code": _same_code(report),
            **({} if own is None else own.answer),
            **loads_of(found.loads),
            "summary": f"{said}, {words.place}{rest}",
        },
    )


def _effect(bounds: ShownInterval, *, slower: bool) -> str:
    """Return the word for the head: slower only by more than the margin."""
    said = wording.effect(bounds)
    return "slower" if slower else wording.NO_DIFFERENCE if said == "slower" else said


def _not_slower(bounds: ShownInterval, margin: float) -> str:
    """Return the words for an interval that does not lie below the margin."""
    if bounds.low >= 1.0 - margin and bounds.high <= 1.0 + margin:
        return f"head and base are equivalent within {margin * 100:.0f} %"
    if bounds.low >= 1.0 - margin:
        return f"head is not slower than base ({margin * 100:.0f} % margin)"
    return wording.effect(bounds) if wording.effect(bounds) == wording.NOT_MEASURED else wording.NO_DIFFERENCE


def _over_passes(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    arms, passes = arms_of(report, evidence), report.body["rows"]["passes"]
    margin = float(report.body["config"]["slower_margin"])
    ratio = time_ratio(arms, "decode_s")
    each = [ratio_of(arms, set(launches)) for launches in passes]
    if ratio is None or any(one is None for one in each) or arms.candidate is None or not arms.reference:
        return
    low, high = outward(*ratio.interval(CONFIDENCE), 3)
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
    yield replace(
        ClaimDraft.of_ratio(
            "decode_speedup",
            "primary",
            ratio,
            f"{said}: {ratio.value:.3f}x [{low:.3f}, {high:.3f}] 95 %, {ratio.n} prompts",
        ),
        baseline=report.body["config"]["base_commit"][:12],
        arms=(arms.candidate.name, *(arm.name for arm in arms.reference)),
        stops=_earlier(evidence),
        detail={
            "slower": len(slower) == len(each) and len(each) > 1,
            "passes": len(each),
            "slower_passes": len(slower),
            "noise_floor": noise_floor(arms, evidence.profile),
            "same_code": _same_code(report),
            "summary": f"{said}: {ratio.value:.3f}x [{low:.3f}, {high:.3f}] 95 %",
        },
    )


def _earlier(evidence: Evidence) -> dict[Premise, str]:
    if not evidence.earlier:
        return {}
    count = len(evidence.earlier)
    return {"attempts": f"{count} earlier attempts at these commits: a decision by passes is not pooled"}


def _same_code(report: Report) -> bool:
    trees = report.body["rows"]["trees"]
    return bool(trees["base"]["sources_sha256"] == trees["head"]["sources_sha256"])


def ratio_of(arms: Arms, launches: set[int]) -> Ratio | None:
    """Return base over head within some launches, None where there are too few rows."""
    return time_ratio(within(arms, launches), "decode_s")


@report_rule(
    "G4-TREES",
    "code",
    kinds=(COMMIT_COMPARISON,),
    remedy="Let the harness start each side with its own checkout first on the module path.",
)
def compare_checkouts(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Each side of a comparison of two commits ran that commit's code, and the commits are those that were asked for.

    Two checkouts on one module path are one checkout: whichever comes first runs twice, and the difference is none.
    """
    config, trees = report.body["config"], report.body["rows"]["trees"]
    sides = (("base", trees["base"], config["base_commit"]), ("head", trees["head"], config["head_commit"]))
    for side, tree, commit in sides:
        wanted = f"{side}/engine/__init__.py"
        if tree["imported"] != wanted:
            yield Violation(
                f"{side} imported {tree['imported']!r}, expected {wanted!r}", f"/rows/trees/{side}/imported"
            )
        if tree["commit"] != commit:
            yield Violation(
                f"{side} ran {tree['commit'][:12]}, the settings say {commit[:12]}",
                f"/rows/trees/{side}/commit",
            )
    spec, record = evidence.spec, evidence.record
    if spec is not None and spec.base != config["base_commit"]:
        yield Violation(f"base is {config['base_commit']}, the job spec says {spec.base}", "/config/base_commit")
    if record is not None and record.code is not None and record.code.identity != config["head_commit"]:
        yield Violation(
            f"head is {config['head_commit']}, the runner checked out {record.code.identity}", "/config/head_commit"
        )
    margin = None if spec is None else spec.params.get("margin")
    if margin is not None and margin != config["slower_margin"]:
        yield Violation(f"margin {config['slower_margin']}, asked for {margin}", "/config/slower_margin")


@report_rule(
    "G5-CONFIRM",
    "ratio",
    kinds=(COMMIT_COMPARISON,),
    remedy="Run a second pass of the same launches when the first is slow.",
)
def require_second_pass(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Where no turns were handed out, a commit is called slower only after a second pass said so too.

    The rule over launches has its error rates by itself. Gates that fail on one noisy pass get switched off; of six
    reruns of one pull request no two alerts agreed.
    """
    if report.body["config"]["base_commit"] == report.body["config"]["head_commit"]:
        yield Violation("base and head are the same commit", "/config/head_commit")
    arms, passes = arms_of(report, evidence), report.body["rows"]["passes"]
    listed = [launch for launches in passes for launch in launches]
    launches = sorted({sample["launch"] for arm in arms.all for sample in arm.measured})
    if sorted(listed) != launches:
        yield Violation(f"passes list launches {listed}, the samples have {launches}", "/rows/passes")
        return
    if series_of(report, evidence) is not None:
        if len(passes) > 1:
            yield Violation("two passes of launches whose turns were handed out", "/rows/passes")
        return
    if len(passes) == 2 and len(passes[0]) != len(passes[1]):
        yield Violation("the passes have different numbers of launches", "/rows/passes")
    first = ratio_of(arms, set(passes[0]))
    margin = float(report.body["config"]["slower_margin"])
    slow = first is not None and first.interval(CONFIDENCE)[1] < 1.0 - margin
    if slow and len(passes) == 1:
        yield Violation("the first pass is slow and was not confirmed", "/rows/passes", severity="violation")
    if not slow and len(passes) == 2:
        yield Violation("a second pass although the first was not slow", "/rows/passes", severity="violation")
