"""What follows from the tokens and steps of a sample: its counts, digests, loop and answer.

Reads only what a program alone can know. Knows no record; what a sample states beside is not looked at.
"""

from __future__ import annotations

from typing import cast

from bridge.gate.declared.views import StatedSampleCounters, StatedSampleStages
from bridge.gate.facts.outputs import answered, loop_onset, token_digest
from bridge.gate.facts.samples import Sample
from bridge.gate.report_kinds import UNSEEN


def derive_sample(sample: Sample, arm: str) -> Sample:
    """Return a sample whose fields that follow from others are computed from these.

    Args:
        sample: of a well-formed report.
        arm: name of its arm; of one that only answers nobody lists steps.
    """
    tokens, stages = sample["tokens"], sample["stages"]
    return {
        **sample,
        "output_tokens": len(tokens),
        "token_digest": token_digest(tokens) or "",
        "loop_onset": loop_onset(tokens),
        "correct": None if sample["expected"] is None else answered(sample["expected"], sample["text"]),
        "stages": cast("StatedSampleStages", {**stages, "total_s": stages["prefill_s"] + stages["decode_s"]}),
        "counters": sample["counters"] if arm in UNSEEN else _counters(sample),
    }


def _counters(sample: Sample) -> StatedSampleCounters:
    """Return the sums over the steps of a sample; calls of a drafter and refused rows are the program's own count."""
    accepted, drafted = sample["accepted_per_step"], sample["drafted_per_step"]
    steps = len(sample["tokens"]) - 1 if accepted is None else len(accepted)
    derived = {
        "steps": steps,
        "target_forwards": steps,
        "accepted_tokens": sum(accepted or ()),
        "drafted_tokens": sum(drafted or ()),
    }
    return cast("StatedSampleCounters", {**sample["counters"], **derived})
