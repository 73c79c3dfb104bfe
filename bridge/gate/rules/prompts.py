"""Rules on prompts and the rows they make."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridge.gate.facts.samples import Arm, Sample, arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import BOUNDED_RECALL, DRAFTER_PARITY, SAME_PROMPTS, SAMPLED
from bridge.gate.rule import report_rule


@report_rule(
    "G4-PROMPTS",
    "inputs",
    kinds=(*SAMPLED, BOUNDED_RECALL, DRAFTER_PARITY),
    remedy="Store the token ids of every prompt under `prompts`, as the engine's report builder does.",
)
def compare_prompt_tokens(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The tokens of every prompt are in the report, and its digest, length and distinctness follow from them.

    One prompt under many digests counts as many: n distinct prompts are n lists of tokens. Each is stored once, as the
    base64 of its ids as little-endian uint32, by the digest of just these bytes.
    """
    stored = report.body.get("prompts")
    met = _decoded_prompts(report, evidence)
    if stored is None:
        # A runner that reads the sizes of models is of an age that knows this field; an older run could not have it.
        old = evidence.record is not None and all(model.shape is None for model in evidence.record.models)
        severity = "note" if old and evidence.authority != "host" else "violation"
        yield Violation("the prompts' tokens are absent", "/prompts", severity=severity)  # type: ignore[arg-type]
        return
    for digest in sorted(stored.keys() - met.keys()):
        yield Violation(f"prompt {digest[:12]}… was met by no sample", f"/prompts/{digest}")
    for digest, tokens in met.items():
        if digest not in stored:
            yield Violation(f"the tokens of prompt {digest[:12]}… are absent", "/prompts")
            continue
        for message in _token_problems(digest, stored[digest], tokens, report.body["config"]["target"]["vocab_size"]):
            yield Violation(message, f"/prompts/{digest}")


def _decoded_prompts(report: Report, evidence: Evidence) -> Mapping[str, int | None]:
    """Return the prompts that were decoded, with the length their rows state, by digest."""
    if report.kind == DRAFTER_PARITY:
        ends = _prompt_ends(report.body["rows"]["blocks"])
        return {row["prompt_digest"]: ends.get(row["prompt_id"]) for row in report.body["rows"]["generations"]}
    if report.kind == BOUNDED_RECALL:
        return {row["prompt_digest"]: row["prompt_tokens"] for row in report.body["rows"]["answers"]}
    return {s["prompt_digest"]: s["prompt_tokens"] for arm in arms_of(report, evidence).all for s in arm.samples}


def _prompt_ends(blocks: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return by prompt where its first block begins: after its tokens."""
    ends: dict[str, int] = {}
    for block in blocks:
        ends[block["prompt_id"]] = min(block["position"], ends.get(block["prompt_id"], block["position"]))
    return ends


def _token_problems(digest: str, text: str, tokens: int | None, vocabulary: int) -> Iterator[str]:
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        yield "not base64"
        return
    if hashlib.sha256(data).hexdigest() != digest:
        yield "prompt_digest is not the digest of the tokens"
    count, rest = divmod(len(data), 4)
    if rest or not count:
        yield f"{len(data)} bytes are no list of token ids"
        return
    if tokens is not None and count != tokens:
        yield f"{count} tokens, its samples say {tokens}"
    largest = max(struct.unpack(f"<{count}I", data))
    if largest >= vocabulary:
        yield f"token {largest} is outside a vocabulary of {vocabulary}"


@report_rule("G4-ROWS", "inputs", kinds=SAMPLED, remedy="Keep every row exactly as it was measured, once.")
def require_distinct_rows(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Sample rows are distinct, and every arm has the same prompts.

    A row that occurs twice counts twice; a prompt that only one arm met is a choice. The warm-up that was counted made
    the seed's 0.97x a 1.27x.
    """
    arms = arms_of(report, evidence).all
    ids = Counter(sample["id"] for arm in arms for sample in arm.samples)
    for name, count in ids.items():
        if count > 1:
            yield Violation(f"sample {name!r} occurs {count} times")
    for arm in arms:
        places = [(sample["launch"], sample["order_index"]) for sample in arm.samples]
        if places != sorted(places):
            yield Violation("samples are not in running order", f"/arms/{arm.index}/samples")
    yield from _prompt_facts(arms)
    if report.kind in SAME_PROMPTS:
        yield from _arm_prompts(arms)


def _prompt_facts(arms: tuple[Arm, ...]) -> Iterator[Violation]:
    """Yield prompts that are not the same thing everywhere."""
    seen: dict[str, tuple[Any, Sample]] = {}
    digests: dict[str, str] = {}
    for arm in arms:
        for sample in arm.samples:
            facts = tuple(sample[name] for name in ("prompt_digest", "prompt_tokens", "kind", "expected", "is_warmup"))
            known = seen.setdefault(sample["prompt_id"], (facts, sample))[0]
            if known != facts:
                name = sample["prompt_id"]
                yield Violation(
                    f"prompt {name!r} is {facts[1:]} here, {known[1:]} elsewhere, or has another digest",
                    arm.pointer(sample),
                )
            if digests.setdefault(sample["prompt_digest"], sample["prompt_id"]) != sample["prompt_id"]:
                yield Violation(
                    f"prompts {digests[sample['prompt_digest']]!r} and {sample['prompt_id']!r} are the same tokens",
                    arm.pointer(sample),
                )


def _arm_prompts(arms: tuple[Arm, ...]) -> Iterator[Violation]:
    """Yield arms that met other prompts than the first arm."""
    if not arms:
        return
    rows = [Counter((s["launch"], s["prompt_id"], s["is_warmup"]) for s in arm.samples) for arm in arms]
    for arm, row in zip(arms[1:], rows[1:], strict=True):
        for key in sorted((row - rows[0]) + (rows[0] - row))[:4]:
            yield Violation(
                f"prompt {key[1]!r} of launch {key[0]} is not in every arm equally often", f"/arms/{arm.index}"
            )
