"""What follows from the tokens and steps of samples: their ids, counts, digests, loops and answers.

Reads only what a program alone can know. Knows no record; what a sample states beside is not looked at.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from bridge.gate.declared.views import StatedArm, StatedReport, StatedSample, StatedSampleCounters, StatedSampleStages
from bridge.gate.facts.outputs import answered, loop_onset, token_digest
from bridge.gate.report_kinds import UNSEEN


class DerivedSamples:
    """Derives the samples of one report, each loop looked for once a list of tokens."""

    def __init__(self, body: StatedReport) -> None:
        self._prompt_tokens = _prompt_lengths(body.get("prompts") or {})
        self._refused = Counter[str]()
        for row in body["fallbacks"]:
            if row["component"] == "target" and row["sample"] is not None:
                self._refused[row["sample"]] += row["count"]
        self._onsets: dict[str | None, int | None] = {}

    def of(self, arm: StatedArm) -> tuple[StatedSample, ...]:
        """Return the samples of an arm; of one that only answers nobody lists steps, and its counters stay 0."""
        return tuple(self._derive(sample, arm["name"]) for sample in arm["samples"])

    def _derive(self, sample: StatedSample, arm: str) -> StatedSample:
        tokens, stages = sample["tokens"], sample["stages"]
        name = f"{sample['launch']}/{sample['order_index']}/{arm}/{sample['prompt_id']}"
        digest = token_digest(tokens)
        if digest not in self._onsets or digest is None:
            self._onsets[digest] = loop_onset(tokens)
        counters = sample["counters"] if arm in UNSEEN else _counters(sample, self._refused[name])
        derived = {
            "id": name,
            "prompt_tokens": self._prompt_tokens.get(sample["prompt_digest"], sample["prompt_tokens"]),
            "output_tokens": len(tokens),
            "token_digest": digest or "",
            "loop_onset": self._onsets[digest],
            "correct": None if sample["expected"] is None else answered(sample["expected"], sample["text"]),
            "stages": cast("StatedSampleStages", {**stages, "total_s": stages["prefill_s"] + stages["decode_s"]}),
            "counters": counters,
        }
        return cast("StatedSample", {**sample, **derived})


def _counters(sample: StatedSample, refused: int) -> StatedSampleCounters:
    """Return the sums over the steps of a sample, and how many rows its fallbacks say were refused."""
    accepted, drafted = sample["accepted_per_step"], sample["drafted_per_step"]
    steps = len(sample["tokens"]) - 1 if accepted is None else len(accepted)
    derived = {
        "steps": steps,
        "target_forwards": steps,
        "accepted_tokens": _sum(accepted),
        "drafted_tokens": _sum(drafted),
        "guard_rejections": refused,
    }
    return cast("StatedSampleCounters", {**sample["counters"], **derived})


def _sum(counts: Sequence[int] | None) -> int:
    return sum(counts or ())


def _prompt_lengths(prompts: Mapping[str, str]) -> dict[str, int]:
    """Return how many tokens each stored prompt has, by its digest; what is no list of tokens is left out."""
    lengths = {}
    for digest, text in prompts.items():
        try:
            lengths[digest] = len(base64.b64decode(text, validate=True)) // 4
        except (ValueError, binascii.Error):
            continue  # G4-PROMPTS says so
    return lengths
