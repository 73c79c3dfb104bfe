"""A study that is one process and one report: run it between two clock readings, then write what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from engine.measurement.launch import environment
from engine.protocols import Backend
from engine.reports import Report, RunContext, write_report
from engine.reports.context import utc_now

Found = TypeVar("Found")


@dataclass(frozen=True)
class Study:
    """What a report says beside its rows. ``versions`` adds packages of a second backend to the environment."""

    kind: str
    backend: Backend
    config: Mapping[str, Any]
    context: RunContext
    report: str
    versions: Mapping[str, str] = field(default_factory=dict)

    def write(self, run: Callable[[], tuple[Found, Mapping[str, Any]]]) -> Found:
        """Run the study and write its report.

        Args:
            run: Returns what was found and the parts of the report that hold it: ``rows``, ``arms``, ``fallbacks``.
        """
        clock = self.backend.clock
        started_at, began_ns = utc_now(), clock.host_ns()
        result, parts = run()
        facts = environment(self.backend)
        report = Report(
            kind=self.kind,
            config=self.config,
            environment=facts | {"versions": facts["versions"] | dict(self.versions)},
            started_at=started_at,
            ended_at=utc_now(),
            wall_s=(clock.host_ns() - began_ns) / 1e9,
        )
        write_report(replace(report, **parts), self.context, self.report)
        return result
