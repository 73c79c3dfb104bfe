"""What a drafter's server offers, and the hash in which both sides agree on it before any row is sent.

The target's weights are not part of it: quantised forms of one target share a drafter, and a drafter of another
target's weights costs accepted tokens, never a wrong one.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.errors import ModelMismatchError, UsageError
from engine.structure.layout import EXACT
from engine.types import FLOAT8, FLOAT8_SCALE_BYTES, DrafterInfo, TargetInfo

PROTOCOL = 1
MOST_NAME_CHARS = 200
MOST_SETTINGS_CHARS = 1 << 16
MOST_BLOCK_ROWS = 1 << 10
"""Of a drafter, the bonus counted: what is learnt of each depth is kept for every one of them."""
FORMATS: dict[str, pb.RowFormat] = {
    "float32": pb.ROW_FORMAT_FLOAT32,
    "bfloat16": pb.ROW_FORMAT_BFLOAT16,
    "float16": pb.ROW_FORMAT_FLOAT16,
    FLOAT8: pb.ROW_FORMAT_FLOAT8_E4M3,
}
"""Formats of rows by the name of their dtype."""
_DIGEST = re.compile("[0-9a-f]{64}")
_ITEM_BYTES = {pb.ROW_FORMAT_FLOAT32: 4, pb.ROW_FORMAT_BFLOAT16: 2, pb.ROW_FORMAT_FLOAT16: 2}


def row_bytes(row_format: pb.RowFormat, width: int) -> int:
    """Return how many bytes a row of so many numbers takes."""
    if row_format == pb.ROW_FORMAT_FLOAT8_E4M3:
        return FLOAT8_SCALE_BYTES + width
    return width * _ITEM_BYTES[row_format]


def named_format(rows: str, own: str) -> str:
    """Return the format of rows that was asked for, ``own`` where it is the target's own.

    Raises:
        UsageError: If there is no such format.
    """
    found = own if rows == EXACT else rows
    if found not in FORMATS:
        raise UsageError(f"rows {rows!r}; expected {EXACT}, {', '.join(FORMATS)}")
    return found


@dataclass(frozen=True, slots=True)
class DrafterOffer:
    """What a server drafts with, and for which target.

    ``context_tokens`` is how many of the newest positions the drafter's context shows, None for all. ``hidden_size`` is
    0 and ``tokenizer`` empty where no rows are read and any tokenizer will do. ``most_proposed`` is how many ids of a
    distribution it tells for each token, 0 for tokens only.
    """

    info: DrafterInfo
    capture: tuple[int, ...]
    context_tokens: int | None
    hidden_size: int
    vocab_size: int
    tokenizer: str
    lease_s: float
    most_proposed: int = 0

    @property
    def width(self) -> int:
        """Numbers in a row: the hidden states of all captured layers."""
        return len(self.capture) * self.hidden_size

    def message(self) -> pb.DrafterFacts:
        """Return what is sent of it."""
        return pb.DrafterFacts(
            protocol=PROTOCOL,
            name=self.info.name,
            digest=self.info.digest or "",
            format=self.info.format,
            parameters=self.info.parameters,
            block_size=self.info.block_size or 0,
            settings_json=json.dumps(self.info.settings, sort_keys=True),
            capture=self.capture,
            context_tokens=self.context_tokens or 0,
            hidden_size=self.hidden_size,
            vocab_size=self.vocab_size,
            tokenizer=self.tokenizer,
            lease_ms=int(self.lease_s * 1000),
            most_proposed=self.most_proposed,
        )

    @classmethod
    def read(cls, facts: pb.DrafterFacts) -> DrafterOffer:
        """Return what a server sent.

        Raises:
            ModelMismatchError: If it speaks another version of the protocol, or says something unusable.
        """
        if facts.protocol != PROTOCOL:
            raise ModelMismatchError(
                f"the drafter's server speaks version {facts.protocol} of the protocol; expected {PROTOCOL}. Install "
                "the same version of Kakeya at both ends."
            )
        unusable = _unusable(facts)
        if unusable:
            raise ModelMismatchError(f"the drafter's server says {unusable}; serve it with the same version of Kakeya")
        try:
            settings: Any = json.loads(facts.settings_json or "{}", parse_constant=_no_number)
            # As a report will be written: 1e999 is read as infinity, and half of a pair of surrogates as text.
            json.dumps(settings, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise ModelMismatchError(f"the drafter's server sent settings that are no JSON: {error}") from error
        info = DrafterInfo(
            name=facts.name,
            digest=facts.digest or None,
            format=facts.format,
            parameters=facts.parameters,
            block_size=facts.block_size or None,
            settings=settings if isinstance(settings, dict) else {},
        )
        return cls(
            info,
            tuple(facts.capture),
            facts.context_tokens or None,
            facts.hidden_size,
            facts.vocab_size,
            facts.tokenizer,
            facts.lease_ms / 1000,
            facts.most_proposed,
        )

    def check_fits(self, target: TargetInfo, tokenizer: str) -> None:
        """Check that the drafter belongs to a target with this digest of its tokenizer.

        Raises:
            ModelMismatchError: If it does not.
        """
        facts: list[tuple[str, object, object]] = [("vocabulary", self.vocab_size or None, target.vocab_size)]
        if self.capture:
            facts += [
                ("hidden size", self.hidden_size, target.hidden_size),
                ("tokenizer", self.tokenizer, tokenizer),
            ]
        for name, got, expected in facts:
            if got is not None and got != expected:
                raise ModelMismatchError(
                    f"the remote drafter {self.info.name!r} is for a target with {name} {got}; {target.name!r} has "
                    f"{expected}. Serve the drafter trained for it."
                )
        if self.capture and self.capture[-1] >= target.layer_count:
            raise ModelMismatchError(
                f"the remote drafter {self.info.name!r} reads target layer {self.capture[-1]}; {target.name!r} has "
                f"{target.layer_count} layers"
            )

    def compatibility(self, row_format: str) -> bytes:
        """Return the hash both sides compare when a session opens."""
        agreed = {
            "protocol": PROTOCOL,
            "drafter": self.info.digest or self.info.name,
            "format": self.info.format,
            "capture": list(self.capture),
            "hidden_size": self.hidden_size,
            "vocab_size": self.vocab_size,
            "tokenizer": self.tokenizer,
            "rows": row_format,
        }
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest()


def _unusable(facts: pb.DrafterFacts) -> str:
    """Return what a server says that no drafter is, empty where there is nothing: its facts reach screens and reports.

    A name is shown with its quotes and escapes, so that nothing of it acts on a terminal.
    """
    texts = {"name": facts.name, "format": facts.format}
    for what, text in texts.items():
        if not text.isprintable() or len(text) > MOST_NAME_CHARS:
            return f"a {what} of {text[:20]!r}, expected at most {MOST_NAME_CHARS} printable characters"
    for what, text in {"digest": facts.digest, "tokenizer": facts.tokenizer}.items():
        if text and not _DIGEST.fullmatch(text):
            return f"a {what} of {text[:20]!r}, expected sha256 in hex"
    if len(facts.settings_json) > MOST_SETTINGS_CHARS:
        return f"{len(facts.settings_json)} characters of settings, expected at most {MOST_SETTINGS_CHARS}"
    if facts.block_size and not 2 <= facts.block_size <= MOST_BLOCK_ROWS:
        return f"a block of {facts.block_size} rows, expected 2 to {MOST_BLOCK_ROWS}, or 0 for any"
    if list(facts.capture) != sorted(set(facts.capture)):
        return f"layers {list(facts.capture)[:8]} that it reads, expected them ascending"
    return ""


def _no_number(word: str) -> None:
    """Raise ValueError of what Python reads as a number and JSON has not."""
    raise ValueError(f"{word} is no number")


def tokenizer_digest(folder: Path) -> str:
    """Return sha256 hex of a folder's tokenizer.json, empty where there is none."""
    path = folder / "tokenizer.json"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
