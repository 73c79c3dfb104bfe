"""What `quote` says, and what sittings say together, for people and as `data` alike."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from bridge.client.document.parts import part
from bridge.records.quotation import QuotationWord


@part
class StandingEnd:
    """A ratio at one load; `load` is None where sittings do not differ by it. `next_sitting` is a prediction."""

    load: float | None
    value: float
    interval: tuple[float, float]
    next_sitting: tuple[float, float]


@part
class SittingRow:
    """One sitting of a standing claim, as the mean of its launches."""

    id: str
    attempt: int
    log_ratio: float
    load: float | None


@part
class StandingRow:
    """What a set of sittings says of one ratio; `why` is empty where it may be quoted."""

    claim: str
    quotation: QuotationWord
    wording: str
    why: tuple[str, ...]
    looks: int
    span_s: float | None
    ends: list[StandingEnd]
    sittings: list[SittingRow]


@part
class RefusedRow:
    """A claim that may not be quoted."""

    claim: str
    why: str


@part
class QuoteData:
    """The sentences that may be said, and the claims that may not.

    Attributes:
        quotation: whether anything may be quoted.
        lines: a sentence a claim and the command that checks them; empty when nothing may be quoted.
        standing: what sittings that are quoted together say.
    """

    quotation: QuotationWord
    lines: list[str]
    refused: list[RefusedRow]
    standing: list[StandingRow] = field(default_factory=list)


@part
class StandingData:
    """What `run --profile standing` prints; `set` is None where nothing was sent."""

    set: str | None
    preset: str
    runs: list[str]
    standing: list[StandingRow]


@part
class CheckRow:
    """One thing that `verify` looked at; ``ok`` where it did not fail, the level ``warn`` where it was not checked."""

    name: str
    ok: bool
    level: Literal["ok", "warn", "fail"]
    text: str


@part
class VerifyData:
    """What `verify` found."""

    source: str
    id: str | None
    ok: bool
    signed: bool
    answer: Literal["verified", "first use", "unsigned", "untrusted", "altered"]
    quotation: Literal["quotable", "measured", "refused"] | None
    checks: list[CheckRow]
    standing: list[StandingRow]
