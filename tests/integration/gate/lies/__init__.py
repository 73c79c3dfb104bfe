"""Every way of lying that is tried, each one change to the honest workload, with the verdict it deserves."""

from tests.integration.gate.lies import (
    claimed,
    endings,
    files,
    left_out,
    memory,
    models,
    other_outputs,
    other_times,
    rows,
    stale,
    substituted,
    timed,
)
from tests.integration.gate.lies.registry import EARLIER, HONEST, LIES, RUN_FOR_REAL, SECONDS_LONG, TWINS

__all__ = [
    "EARLIER",
    "HONEST",
    "LIES",
    "RUN_FOR_REAL",
    "SECONDS_LONG",
    "TWINS",
    "claimed",
    "endings",
    "files",
    "left_out",
    "memory",
    "models",
    "other_outputs",
    "other_times",
    "rows",
    "stale",
    "substituted",
    "timed",
]
