"""Every way of lying that is tried, each one change to the honest workload, with the verdict it deserves."""

from tests.integration.gate.lies import claimed, endings, files, memory, models, rows, stale, substituted, timed
from tests.integration.gate.lies.registry import EARLIER, HONEST, LIES, RUN_FOR_REAL

__all__ = [
    "EARLIER",
    "HONEST",
    "LIES",
    "RUN_FOR_REAL",
    "claimed",
    "endings",
    "files",
    "memory",
    "models",
    "rows",
    "stale",
    "substituted",
    "timed",
]
