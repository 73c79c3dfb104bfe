"""How far a running run is, in words and as a part of a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.client.document.parts import ProgressPart
from bridge.client.document.untrusted import clean_line
from bridge.durations import duration_text

if TYPE_CHECKING:
    from bridge.records.claim import RunProgress

_UNITS = {"sample": "samples", "launch": "launches"}


def progress_text(progress: RunProgress) -> str:
    """Return ``train (1 of 2): 12 of 60 samples, about 4m left``; what its runner wrote in it is cleaned."""
    if progress.waits is not None:
        return clean_line(progress.waits)
    step = progress.step if progress.steps == 1 else f"{progress.step} ({progress.number} of {progress.steps})"
    parts = []
    if progress.unit is not None:
        bound = "at most " if progress.unit == "launch" else ""  # a series may end sooner
        of = "" if progress.most is None else f" of {bound}{progress.most}"
        parts.append(f"{progress.done}{of} {_UNITS[progress.unit]}")
    if progress.left_s is not None:
        about = "at most" if progress.unit == "launch" else "about"
        parts.append(f"{about} {duration_text(progress.left_s)} left")
    return step if not parts else f"{step}: {', '.join(parts)}"


def progress_part(progress: RunProgress | None) -> ProgressPart | None:
    """Return it as ``--json`` and ``--json-lines`` show it."""
    if progress is None:
        return None
    waits = None if progress.waits is None else clean_line(progress.waits)
    return ProgressPart(text=progress_text(progress), **{**progress.model_dump(), "waits": waits})
