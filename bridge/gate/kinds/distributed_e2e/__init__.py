"""Equal tokens and drafts over several machines: its claims and its rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bridge.gate.claims import ClaimDraft, generation
from bridge.gate.facts.samples import Arm, Arms, Sample, arms_of, by_prompt
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import DISTRIBUTED_E2E, IN_PROCESS
from bridge.gate.rule import report_rule


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield on how many prompts the rungs agree with plain decoding and with each other, then what calls cost."""
    arms = arms_of(report, evidence)
    if arms.baseline is not None:
        yield _claim(arms.candidates, arms.baseline, _other_tokens(arms.candidates, arms.baseline), "plain decoding")
    here, elsewhere = rungs(arms)
    if here is not None and elsewhere:
        differing = {prompt for rung in elsewhere for prompt, _ in differences(report, rung, here)}
        yield _claim(elsewhere, here, differing, "the drafter in process, each draft compared by its ids' digest")
    yield from generation.call_times(report)


def rungs(arms: Arms) -> tuple[Arm | None, tuple[Arm, ...]]:
    """Return the in-process rung, None without one, and those whose drafter is elsewhere."""
    here = next((arm for arm in arms.candidates if arm.name == IN_PROCESS), None)
    return here, tuple(arm for arm in arms.candidates if arm.name != IN_PROCESS)


def differences(report: Report, rung: Arm, here: Arm) -> Iterator[tuple[str, str]]:
    """Yield each prompt, a warm-up's too, on which a rung is not the in-process one, and what differs first."""
    digests = {(row["arm"], row["sample"]): row["digest"] for row in report.body["rows"]["drafts"]}
    expected = by_prompt(here.samples)
    ours = by_prompt(rung.samples)
    for prompt in dict.fromkeys((*expected, *ours)):
        mine, theirs = ours.get(prompt, []), expected.get(prompt, [])
        if not mine or not theirs:
            yield prompt, "it was met on one of them only"
            continue
        # What equals one of them equals all: a report may repeat a prompt thousands of times on either side.
        for one, other in (*((one, theirs[0]) for one in mine), *((mine[0], other) for other in theirs[1:])):
            said = _apart(one, other, (digests.get((rung.name, one["id"])), digests.get((here.name, other["id"]))))
            if said:
                yield prompt, said
                break


def _apart(one: Sample, other: Sample, digests: tuple[str | None, str | None]) -> str:
    if one["tokens"] != other["tokens"]:
        return "other tokens came out"
    for name in ("drafted_per_step", "accepted_per_step"):
        if one[name] != other[name]:
            return f"{name} differs"
    if None in digests:
        return "the digest of what was proposed is missing"
    return "" if digests[0] == digests[1] else "other ids were proposed"


def _other_tokens(candidates: Sequence[Arm], baseline: Arm) -> set[str]:
    """Return the prompts on which an arm put out other tokens than the baseline, every repeat looked at."""
    reference = {prompt: samples[0]["tokens"] for prompt, samples in by_prompt(baseline.measured).items()}
    return {
        prompt
        for arm in candidates
        for prompt, samples in by_prompt(arm.measured).items()
        if any(sample["tokens"] != reference.get(prompt) for sample in samples)
    }


def _claim(arms: Sequence[Arm], beside: Arm, differing: set[str], said: str) -> ClaimDraft:
    prompts = set(by_prompt(beside.measured))
    same, names = len(prompts - differing), ", ".join(arm.name for arm in arms)
    return ClaimDraft(
        id="identical_rungs" if beside.role == "candidate" else "identical_prompts",
        role="secondary" if beside.role == "candidate" else "primary",
        value=float(same),
        unit="prompts",
        n=len(prompts),
        baseline=beside.name,
        arms=(*(arm.name for arm in arms), beside.name),
        wording=f"{names}: identical to {said} on {same} of {len(prompts)} prompts",
    )


@report_rule(
    "G6-RUNGS",
    "outputs",
    severity="violation",
    kinds=(DISTRIBUTED_E2E,),
    remedy="Compare what both drafters proposed, step by step; look at how rows were cut and at their dtype.",
)
def compare_rungs(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Every rung drafts, and puts out and proposes what the in-process rung does, in every dtype.

    Whether speculative decoding equals plain decoding is decided by kernels: in half precision a near-tie may break
    either way. The same drafter elsewhere is the same computation, so nothing excuses a difference there.
    """
    here, elsewhere = rungs(arms_of(report, evidence))
    for (arm, sample), count in Counter((row["arm"], row["sample"]) for row in report.body["rows"]["drafts"]).items():
        if count > 1:
            yield Violation(f"{count} digests of what {sample!r} proposed", "/rows/drafts", arms=(arm,))
    if here is None:
        if elsewhere:
            yield Violation(f"no arm is called {IN_PROCESS!r}: there is nothing to compare the rungs with", "/arms")
        return
    for rung in elsewhere:
        if not any(any(sample["drafted_per_step"] or ()) for sample in rung.measured):
            said = f"{rung.name!r} drafted nothing: that it is identical to the in-process rung says nothing"
            yield Violation(said, f"/arms/{rung.index}", arms=(rung.name,))
        found = list(differences(report, rung, here))
        if found:
            prompt, said = found[0]
            yield Violation(
                f"{rung.name!r} is not the in-process rung on {len(found)} prompts, first {prompt!r}: {said}",
                f"/arms/{rung.index}",
                arms=(rung.name,),
            )
