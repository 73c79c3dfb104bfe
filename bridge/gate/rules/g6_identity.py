"""The candidate's tokens are the baseline's, recomputed token by token; the control's are too.

"Byte-identical" outputs of the seed differed in 3 of 8. In fp32 a difference is a fault; in lower precision two
kernels may break a near-tie differently, which is said with the place and the margin.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.claims.generation import compare
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of, by_prompt, first_difference


@report_rule(
    "G6-IDENTITY",
    severity="not_citable",
    kinds=(*kinds.INTERLEAVED, kinds.ACCEPTANCE, kinds.DISTRIBUTED_E2E),
    remedy="Find the first differing token and its margin in the report; check cache cropping and masks first.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence)
    same, prompts, _, (where, margin) = compare(arms)
    dtype = str(report.body["config"]["dtype"])
    if prompts and same != prompts:
        yield Violation(
            f"{prompts - same} of {prompts} prompts differ from native decoding, first at token {where} "
            f"(top-2 margin {margin}, {dtype})",
            "/arms",
            severity="not_citable" if dtype == "float32" else "note",
        )
    if arms.baseline is not None and arms.control is not None:
        theirs, again = by_prompt(arms.baseline.measured), by_prompt(arms.control.measured)
        for prompt in theirs:
            place = (
                first_difference(theirs[prompt][0]["tokens"], again[prompt][0]["tokens"]) if prompt in again else None
            )
            if place is not None:
                yield Violation(
                    f"prompt {prompt!r}: native decoding differs from itself at token {place}",
                    "/arms",
                    claims=("identical_prompts",),
                )
    if arms.candidate is not None and arms.baseline is not None:
        yield from _warmups(report, evidence)
        yield from _lengths(report, evidence)


def _warmups(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Yield a warm-up whose arms differ in fp32: it is not counted, and still the same decoding."""
    if report.body["config"]["dtype"] != "float32":
        return
    seen: dict[tuple[int, str], tuple[int, ...]] = {}
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            key = (sample["launch"], sample["prompt_id"])
            if sample["is_warmup"] and seen.setdefault(key, tuple(sample["tokens"])) != tuple(sample["tokens"]):
                yield Violation(f"warm-up {sample['prompt_id']!r} differs between arms", arm.pointer(sample))


def _lengths(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Yield prompts whose arms emitted different numbers of tokens: their times are of different work."""
    arms = arms_of(report, evidence)
    lengths = {
        prompt: {s["output_tokens"] for arm in arms.all for s in by_prompt(arm.measured).get(prompt, ())}
        for prompt in by_prompt(sample for arm in arms.all for sample in arm.measured)
    }
    unequal = [prompt for prompt, found in lengths.items() if len(found) > 1]
    if unequal:
        yield Violation(
            f"{len(unequal)} prompts have outputs of different lengths, e.g. {unequal[0]!r}: times of different work",
            "/arms",
            claims=("decode_speedup", "total_speedup"),
        )
