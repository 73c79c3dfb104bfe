"""The one builder of schema 3 reports, and the pipe on which samples announce themselves."""

from engine.reports.builder import Arm, Fallback, Report, ReportClaim, write_report
from engine.reports.context import RunContext
from engine.reports.pipe import SamplePipe
from engine.reports.sample import Counters, Memory, Sample, Stages
from engine.reports.tokens import loop_onset, packed_tokens, repeated_share, token_digest

__all__ = [
    "Arm",
    "Counters",
    "Fallback",
    "Memory",
    "Report",
    "ReportClaim",
    "RunContext",
    "Sample",
    "SamplePipe",
    "Stages",
    "loop_onset",
    "packed_tokens",
    "repeated_share",
    "token_digest",
    "write_report",
]
