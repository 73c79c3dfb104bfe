"""The tokens of every prompt are in the report, and its digest, its length and its being another one follow from them.

One prompt under many digests counts as many: n distinct prompts are n lists of tokens. Each is stored once, as the
base64 of its ids as little-endian uint32, by the digest of just these bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G4-PROMPTS",
    kinds=(*kinds.SAMPLED, kinds.DRAFTER_PARITY),
    remedy="Store the token ids of every prompt under `prompts`, as the engine's report builder does.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    stored = report.body.get("prompts")
    met = _met(report, evidence)
    if stored is None:
        # A runner that reads the sizes of models is of an age that knows this field; an older run could not have it.
        old = evidence.record is not None and all(model.shape is None for model in evidence.record.models)
        severity = "note" if old and evidence.authority != "host" else "not_citable"
        yield Violation("the prompts' tokens are absent", "/prompts", severity=severity)  # type: ignore[arg-type]
        return
    for digest in sorted(stored.keys() - met.keys()):
        yield Violation(f"prompt {digest[:12]}… was met by no sample", f"/prompts/{digest}")
    for digest, tokens in met.items():
        if digest not in stored:
            yield Violation(f"the tokens of prompt {digest[:12]}… are absent", "/prompts")
            continue
        for message in _wrong(digest, stored[digest], tokens, report.body["config"]["target"]["vocab_size"]):
            yield Violation(message, f"/prompts/{digest}")


def _met(report: Report, evidence: Evidence) -> Mapping[str, int | None]:
    """Return the prompts that were decoded, with the length their rows state, by digest."""
    if report.kind == kinds.DRAFTER_PARITY:
        return {row["prompt_digest"]: _begins(report.body["rows"], row) for row in report.body["rows"]["generations"]}
    return {s["prompt_digest"]: s["prompt_tokens"] for arm in arms_of(report, evidence).all for s in arm.samples}


def _begins(rows: Mapping[str, Any], generation: Mapping[str, Any]) -> int | None:
    """Return where the first block of a prompt begins: after its tokens."""
    return min((b["position"] for b in rows["blocks"] if b["prompt_id"] == generation["prompt_id"]), default=None)


def _wrong(digest: str, text: str, tokens: int | None, vocabulary: int) -> Iterator[str]:
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
