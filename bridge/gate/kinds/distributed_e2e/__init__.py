"""Equal tokens over several machines: its claims."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft, generation
from bridge.gate.facts.samples import arms_of, by_prompt
from bridge.gate.interface import Evidence, Report


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield on how many prompts every rung emitted the baseline's tokens, then what calls cost."""
    arms = arms_of(report, evidence)
    if arms.baseline is not None:
        reference = {prompt: samples[0]["tokens"] for prompt, samples in by_prompt(arms.baseline.measured).items()}
        others = [arm for arm in arms.all if arm.role == "candidate"]
        same = [
            prompt
            for prompt, tokens in reference.items()
            if all(s["tokens"] == tokens for arm in others for s in by_prompt(arm.measured).get(prompt, ()))
        ]
        names = ", ".join(arm.name for arm in others)
        yield ClaimDraft(
            id="identical_prompts",
            role="primary",
            value=float(len(same)),
            unit="prompts",
            n=len(reference),
            baseline=arms.baseline.name,
            arms=(*(arm.name for arm in others), arms.baseline.name),
            wording=f"{names}: identical to local decoding on {len(same)} of {len(reference)} prompts",
        )
    yield from generation.call_times(report)
