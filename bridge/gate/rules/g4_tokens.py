"""A sample's tokens are counted and digested correctly, fit the vocabulary, and end as their stop reason says.

Everything else is computed from the raw tokens, so they must be all there and nothing but them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Sample, arms_of, token_digest


@report_rule(
    "G4-TOKENS", kinds=kinds.SAMPLED, remedy="Record the emitted token ids themselves, the stop token included."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    config = report.body["config"]
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            for message in _tokens(sample, config):
                yield Violation(message, arm.pointer(sample))


def _tokens(sample: Sample, config: Mapping[str, Any]) -> Iterator[str]:
    tokens = sample["tokens"]
    if sample["output_tokens"] != len(tokens):
        yield f"output_tokens is {sample['output_tokens']}, {len(tokens)} tokens are there"
    if token_digest(tokens) != sample["token_digest"]:
        yield "token_digest is not the digest of the tokens"
    vocabulary = config["target"]["vocab_size"]
    if max(tokens) >= vocabulary:
        yield f"token {max(tokens)} is outside a vocabulary of {vocabulary}"
    stopping, reason, budget = set(config["stopping_ids"]), sample["stop_reason"], config["max_new_tokens"]
    if any(token in stopping for token in tokens[:-1]):
        yield "decoding went on after a stop token"
    if (reason == "eos") != (tokens[-1] in stopping):
        yield f"stop_reason is {reason!r}, the last token {tokens[-1]}"
    if len(tokens) > budget or (reason == "budget" and len(tokens) != budget):
        yield f"{len(tokens)} tokens with a budget of {budget} and stop_reason {reason!r}"
    if reason == "cancelled":
        yield "the sample was cancelled before its end"
