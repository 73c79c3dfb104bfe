"""What `compare` and a sweep say, for people and as `data` alike: facts, numbers, and what stands against them."""

from __future__ import annotations

from typing import Literal

from bridge.client.document.parts import part
from bridge.gate.comparability import Reason
from bridge.gate.comparison import Difference, Noise
from bridge.records.base import ParamValue
from bridge.records.verdict import ClaimDecision


@part
class Fact:
    """One fact of two runs; `same` says whether they agree."""

    name: str
    a: str
    b: str
    same: bool


@part
class ShownDifference(Difference):
    """One number of B against A by the gate's statistics; never citable, and why."""

    why: tuple[str, ...] = ()
    citable: Literal[False] = False


@part
class CompareData:
    """What `compare` says of two runs."""

    a: str
    b: str
    caution: str
    lines: list[Fact]
    differences: list[ShownDifference]
    noise: tuple[Noise, ...]
    reasons: tuple[Reason, ...]


@part
class SweepClaim:
    """A number of one run of a sweep, as the gate gives it."""

    metric: str
    value: float | None
    interval: tuple[float, float] | None
    unit: str
    better: Literal["higher", "lower"] | None
    decision: ClaimDecision
    wording: str


@part
class SweepRun:
    """One run of a sweep; `id` is None where nothing was sent, `params` are those that differ within the sweep.

    `node` and `host_class` say where it was measured, None before that is known.
    """

    id: str | None
    params: dict[str, ParamValue]
    reason: str
    repeat: int = 0
    node: str | None = None
    host_class: str | None = None
    exit_code: int = 0
    verdict: str | None = None
    claims: tuple[SweepClaim, ...] = ()


@part
class SweepDifference:
    """What a metric of run `b` differs by from run `a` of the same repeat; never citable."""

    a: str
    b: str
    metric: str
    value: float
    interval: tuple[float, float] | None
    unit: str
    n: int
    wording: str


@part
class SweepData:
    """What `run` says of a sweep, and `compare` of one."""

    sweep: str | None
    preset: str
    caution: str
    runs: list[SweepRun]
    differences: list[SweepDifference]
