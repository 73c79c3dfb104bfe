"""The claims of distributed runs: the same tokens everywhere, what a call costs, what the wire costs in speed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bridge.gate.claims import Draft, generation, speed
from bridge.gate.interface import Evidence, Report
from bridge.gate.sampled import arms_of, by_prompt


def end_to_end(report: Report, evidence: Evidence) -> Iterator[Draft]:
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
        yield Draft(
            id="identical_prompts",
            metric="identical_prompts",
            role="primary",
            value=float(len(same)),
            unit="prompts",
            n=len(reference),
            baseline=arms.baseline.name,
            arms=(*(arm.name for arm in others), arms.baseline.name),
            wording=f"{names}: identical to local decoding on {len(same)} of {len(reference)} prompts",
        )
    yield from _calls(report)


def bench(report: Report, evidence: Evidence) -> Iterator[Draft]:
    """Yield speed first, then identity, acceptance and calls."""
    yield from speed.drafts(report, evidence)
    yield from generation.identity(report, evidence)
    yield from generation.acceptance(report, evidence)
    yield from _calls(report)


def _calls(report: Report) -> Iterator[Draft]:
    for row in report.body["rows"]["rpcs"]:
        name = f"rpc_{row['arm']}_{row['method']}".lower()
        seconds = row["seconds"]
        yield Draft(
            id=name,
            metric=name,
            role="informational",
            value=statistics.fmean(seconds),
            unit="s",
            n=len(seconds),
            arms=(row["arm"],),
            wording=(
                f"{row['arm']} {row['method']}: mean {statistics.fmean(seconds) * 1e3:.3f} ms, "
                f"median {statistics.median(seconds) * 1e3:.3f} ms, {len(seconds)} calls"
            ),
        )
