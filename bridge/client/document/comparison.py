"""The shape of what `compare` prints as `data`: facts of both, the gate's numbers, and what stands against them."""

from __future__ import annotations

from typing import Any, Literal

from bridge.client.document.envelope import Part


class CompareRow(Part):
    """One fact of two runs."""

    name: str
    a: str
    b: str
    same: bool


class DifferenceRow(Part):
    """One number of B against A by the gate's statistics; never citable.

    Attributes:
        metric: a ratio or count of the engine's arms, or a declared metric of an owner's own program.
    """

    report: str
    metric: str
    arm: str
    role: str
    value: float
    interval: tuple[float, float] | None
    confidence: float | None
    unit: str
    n: int
    wording: str
    detail: dict[str, Any]
    citable: Literal[False]
    why: list[str]


class NoiseRow(Part):
    """The A/A' noise floor of a stage in both runs, as a share; None without a control."""

    report: str
    stage: Literal["decode", "prefill"]
    a: float | None
    b: float | None
    confidence: float


class ReasonRow(Part):
    """What stands against comparing two runs."""

    kind: Literal["impossible", "weaker"]
    text: str
    report: str | None


class SweepClaim(Part):
    """A number of one run of a sweep, as the gate gives it."""

    metric: str
    value: float | None
    interval: tuple[float, float] | None
    unit: str
    better: Literal["higher", "lower"] | None
    decision: Literal["evidence", "valid", "nothing"]
    wording: str


class SweepRun(Part):
    """One run of a sweep; `id` is None where nothing was sent, `params` are those that differ within the sweep.

    `node` and `host_class` say where it was measured, None before that is known.
    """

    id: str | None
    params: dict[str, bool | int | float | str]
    repeat: int
    node: str | None
    host_class: str | None
    reason: str
    exit_code: int
    verdict: str | None
    claims: list[SweepClaim]


class SweepDifference(Part):
    """What a metric of run `b` differs by from run `a` of the same repeat; never citable."""

    a: str
    b: str
    metric: str
    value: float
    interval: tuple[float, float] | None
    unit: str
    n: int
    wording: str


class SweepData(Part):
    """What `run` prints of a sweep, and `compare` of one."""

    sweep: str | None
    preset: str
    caution: str
    runs: list[SweepRun]
    differences: list[SweepDifference]


class CompareData(Part):
    """What `compare` prints."""

    a: str
    b: str
    caution: str
    lines: list[CompareRow]
    differences: list[DifferenceRow]
    noise: list[NoiseRow]
    reasons: list[ReasonRow]
