"""What the gate is: (reports, RunRecord, JobSpec) -> Verdict, a pure function of its arguments.

Layers: G0 shape, G1 binding, G2 provenance, G3 liveness, G4 consistency, G5 statistics, G6 identity, G7 memory,
G8 environment, G9 integrity. Knows no file, process, clock or network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridge.records import Finding, JobSpec, RunRecord, Severity


@dataclass(frozen=True)
class Report:
    """One report: its path below KAKEYA_OUT, its bytes, and its parsed value (None when G0 refused it)."""

    path: str
    data: bytes
    value: Mapping[str, Any] | None


@dataclass(frozen=True)
class Evidence:
    """Everything a rule may look at.

    Attributes:
        record, spec: None when a bare report file is checked outside a run; rules that need them are skipped, and
            such a verdict is never `evidence`.
        profile: thresholds by name, from `profiles/<name>.toml`.
    """

    reports: tuple[Report, ...]
    record: RunRecord | None
    spec: JobSpec | None
    profile: Mapping[str, Any]


@dataclass(frozen=True)
class Skip:
    """A rule that did not look, and why."""

    reason: str


@dataclass(frozen=True)
class Violation:
    """What a rule found; the registry adds code and remedy."""

    message: str
    where: str = ""
    report: str | None = None
    severity: Severity | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


class Rule(Protocol):
    """One file of `bridge/gate/rules`.

    Attributes:
        code: stable code.
        layer: G0 … G9.
        severity: default severity of its violations.
        kinds: report kinds it looks at, empty for every kind.
        remedy: what to do about a violation.
        requires: codes whose violation makes this rule pointless.
    """

    code: str
    layer: str
    severity: Severity
    kinds: tuple[str, ...]
    remedy: str
    requires: tuple[str, ...]

    def __call__(self, evidence: Evidence) -> Iterable[Violation] | Skip:
        """Look."""
        ...


__all__ = ["Evidence", "Finding", "Report", "Rule", "Skip", "Violation"]
