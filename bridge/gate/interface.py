"""What the gate is: (reports, RunRecord, JobSpec) -> Verdict, a pure function of its arguments.

Layers: G0 shape, G1 binding, G2 provenance, G3 liveness, G4 consistency, G5 statistics, G6 identity, G7 memory,
G8 environment, G9 integrity. Knows no file, process, clock or network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from bridge.gate.declared.views import StatedReport
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.verdict import GateIdentity, Premise, Severity, Verdict

Derived = TypeVar("Derived")
Authority = Literal["host", "attested", "unattested"]


@dataclass(frozen=True)
class Report:
    """One report: its path below KAKEYA_OUT, its bytes, and its parsed value (None when G0 refused it)."""

    path: str
    data: bytes
    value: StatedReport | None

    @property
    def kind(self) -> str | None:
        """Kind of a well-formed report."""
        return None if self.value is None else str(self.value["kind"])

    @property
    def body(self) -> StatedReport:
        """Value of a well-formed report.

        Raises:
            ValueError: G0 refused it.
        """
        if self.value is None:
            raise ValueError(f"{self.path} is not well-formed")
        return self.value


@dataclass(frozen=True)
class Evidence:
    """Everything a rule may look at.

    Attributes:
        reports: every report, refused ones with `value` None.
        record, spec: None when a bare report file is checked outside a run; rules that need them are skipped, and
            such a report is bound to nothing.
        profile: thresholds by name, from `profiles/<name>.toml`.
        run_id: the run that is judged, empty for a bare report file.
        authority: who vouches for the record: ``host`` made it in this process, ``attested`` means the caller has
            verified an attestation over it, ``unattested`` means anybody could have written it.
        files: every file the run left, reports included, by relative path.
        earlier: well-formed reports of earlier attempts, by run id.
        earlier_records: what the runner saw of earlier attempts, cut ones too, by run id.
        earlier_specs: what earlier attempts of an owner's own program were to run, by run id.
        earlier_verdicts: what the gate of this host said of earlier attempts when they ended, by run id.
        problems: what G0 found while reading, by path.
        gate: the gate that judges.
        facts: derived values, computed once and shared by rules.
    """

    reports: tuple[Report, ...]
    record: RunRecord | None
    spec: JobSpec | None
    profile: Mapping[str, Any]
    run_id: str = ""
    authority: Authority = "host"
    files: Mapping[str, bytes] = field(default_factory=dict)
    earlier: Mapping[str, tuple[Report, ...]] = field(default_factory=dict)
    earlier_records: Mapping[str, RunRecord] = field(default_factory=dict)
    earlier_specs: Mapping[str, JobSpec] = field(default_factory=dict)
    earlier_verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    problems: Mapping[str, tuple[ReportProblem, ...]] = field(default_factory=dict)
    gate: GateIdentity | None = None
    facts: dict[object, Any] = field(default_factory=dict, compare=False)

    @property
    def nothing_ran(self) -> bool:
        """Whether the record is of a run that ended before any command of it, and left nothing."""
        record = self.record
        return (
            record is not None
            and not (record.commands or record.outputs or self.files)
            and record.program_exit is None
            and record.reason != "passed"
        )

    @property
    def looks(self) -> int:
        """Out of how many numbers one of this run could be chosen."""
        return 1 if self.record is None or self.record.attempt is None else self.record.attempt.looks

    def confidence(self, alone: float) -> float:
        """Return how often an interval is to cover, so that the chosen one of so many still does.

        Args:
            alone: how often that of a number is to cover that is no choice.
        """
        return 1.0 - (1.0 - alone) / self.looks

    def derived(self, key: object, derive: Callable[[], Derived]) -> Derived:
        """Return a value that several rules use, derived once."""
        if key not in self.facts:
            self.facts[key] = derive()
        found: Derived = self.facts[key]
        return found


@dataclass(frozen=True)
class ReportProblem:
    """Why bytes are no report: the G0 code that says so, where and what."""

    code: str
    where: str
    message: str


@dataclass(frozen=True)
class Skip:
    """A rule that did not look, and why."""

    reason: str


@dataclass(frozen=True)
class Violation:
    """What a rule found; the registry adds code and remedy.

    Attributes:
        severity: overrides the rule's own.
        premise: overrides the rule's own.
        arms: whose claims it concerns; empty for those of every arm.
        claims: ids of the claims it concerns; empty for all that need the premise.
    """

    message: str
    where: str = ""
    report: str | None = None
    severity: Severity | None = None
    premise: Premise | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    arms: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
