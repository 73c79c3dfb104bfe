"""Frozen, strict records that cross a boundary; their JSON Schemas are generated from here.

Knows shapes, not meaning: whether a request is allowed, a lease is live or a number may be quoted is decided elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.lazy import importing

if TYPE_CHECKING:
    from bridge.records.archive import ArchivedRun, ArchiveHead
    from bridge.records.base import Record
    from bridge.records.bus import AcceptedWorkflow, Beacon, BusRecord, KeyRecord, QuotaUse, RunnerStart, Wake
    from bridge.records.claim import Claim, ClaimState, Delivery, Reason, RunProgress
    from bridge.records.jobspec import Command, DeclaredOutput, EnvironmentVariable, JobSpec, Limits, SandboxSpec
    from bridge.records.logs import LogHead
    from bridge.records.manifest import Manifest, ManifestEntry
    from bridge.records.request import LimitRequest, Request, RunnerSelector, SweepPlace, Workload
    from bridge.records.run import (
        Attempt,
        CacheShape,
        CodeRecord,
        CommandResult,
        HostRecord,
        ImportedModule,
        LimitHit,
        MachineCondition,
        ModelDigest,
        ModelShape,
        OutputRecord,
        PeerRecord,
        RunRecord,
        SampleMark,
        SandboxApplied,
        Telemetry,
        TelemetrySample,
        TrialOutcome,
    )
    from bridge.records.turns import LaunchRecord, LaunchSeries, SoloStretch, StopRule, Turn
    from bridge.records.verdict import (
        ClaimDecision,
        ClaimResult,
        Decision,
        Finding,
        GateIdentity,
        Premise,
        PremiseResult,
        Severity,
        StoredVerdict,
        Verdict,
    )
    from bridge.records.workload import ConfirmedMetric, MetricDefinition, ProgramDigest, WorkloadDefinition, seed_of

__all__ = [
    "AcceptedWorkflow",
    "ArchiveHead",
    "ArchivedRun",
    "Attempt",
    "Beacon",
    "BusRecord",
    "CacheShape",
    "Claim",
    "ClaimDecision",
    "ClaimResult",
    "ClaimState",
    "CodeRecord",
    "Command",
    "CommandResult",
    "ConfirmedMetric",
    "Decision",
    "DeclaredOutput",
    "Delivery",
    "EnvironmentVariable",
    "Finding",
    "GateIdentity",
    "HostRecord",
    "ImportedModule",
    "JobSpec",
    "KeyRecord",
    "LaunchRecord",
    "LaunchSeries",
    "LimitHit",
    "LimitRequest",
    "Limits",
    "LogHead",
    "MachineCondition",
    "Manifest",
    "ManifestEntry",
    "MetricDefinition",
    "ModelDigest",
    "ModelShape",
    "OutputRecord",
    "PeerRecord",
    "Premise",
    "PremiseResult",
    "ProgramDigest",
    "QuotaUse",
    "Reason",
    "Record",
    "Request",
    "RunProgress",
    "RunRecord",
    "RunnerSelector",
    "RunnerStart",
    "SampleMark",
    "SandboxApplied",
    "SandboxSpec",
    "Severity",
    "SoloStretch",
    "StopRule",
    "StoredVerdict",
    "SweepPlace",
    "Telemetry",
    "TelemetrySample",
    "TrialOutcome",
    "Turn",
    "Verdict",
    "Wake",
    "Workload",
    "WorkloadDefinition",
    "seed_of",
]

_MODULES = {
    "archive": "ArchivedRun ArchiveHead",
    "base": "Record",
    "bus": "AcceptedWorkflow Beacon BusRecord KeyRecord QuotaUse RunnerStart Wake",
    "claim": "Claim ClaimState Delivery Reason RunProgress",
    "jobspec": "Command DeclaredOutput EnvironmentVariable JobSpec Limits SandboxSpec",
    "logs": "LogHead",
    "manifest": "Manifest ManifestEntry",
    "request": "LimitRequest Request RunnerSelector SweepPlace Workload",
    "run": (
        "Attempt CacheShape CodeRecord CommandResult HostRecord ImportedModule LimitHit "
        "MachineCondition ModelDigest ModelShape OutputRecord PeerRecord RunRecord SampleMark "
        "SandboxApplied Telemetry TelemetrySample TrialOutcome"
    ),
    "turns": "LaunchRecord LaunchSeries SoloStretch StopRule Turn",
    "verdict": (
        "ClaimDecision ClaimResult Decision Finding GateIdentity Premise PremiseResult Severity StoredVerdict Verdict"
    ),
    "workload": "ConfirmedMetric MetricDefinition ProgramDigest WorkloadDefinition seed_of",
}
__getattr__ = importing(__name__, _MODULES)
