"""Claims on a bus in a folder: asked again and again, the bus is read when a claim's ref has moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus.refbus import RefBus
from bridge.records.claim import Claim


@dataclass
class Claims:
    """The claims of one bus.

    Attributes:
        repository: the bus's bare repository.
        bus: opens it.
    """

    repository: Path
    bus: Callable[[], RefBus]
    _cache: dict[str, tuple[object, Claim | None]] = field(default_factory=dict)

    def claim(self, run_id: str) -> Claim | None:
        """Return a run's claim; None while nobody took it."""
        mark = ref_mark(self.repository, f"refs/kakeya/claim/{run_id}")
        if mark != self._cache.get(run_id, (None, None))[0]:
            view = self.bus().view(run_id)
            self._cache[run_id] = mark, None if view.claim is None else view.claim.claim
        return self._cache[run_id][1]

    def end(self, run_id: str) -> Claim | None:
        """Return a run's terminal claim; None before its end."""
        claim = self.claim(run_id)
        return claim if claim is not None and claim.state == "terminal" else None


def ref_mark(bare: Path, ref: str) -> tuple[object, ...]:
    """Return what changes when a ref of a bare repository moves: its file, or that of refs which were packed."""
    marks: list[object] = []
    for file in (ref, "packed-refs"):
        try:
            stat = (bare / file).stat()
            marks.append((stat.st_ino, stat.st_mtime_ns))
        except FileNotFoundError:
            marks.append(None)
    return tuple(marks)
