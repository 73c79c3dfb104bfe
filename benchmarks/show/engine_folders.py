"""What the issue on the engine's reach promises to show of the demo, of folders as published, and of conversion."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies.fast_demo import NATIVE
from benchmarks.studies.report import FOLDER, report_of
from engine.measurement.ratio import paired_ratio

STUDIES = "make studies AREA=engine"


def demo(folder: Path = FOLDER) -> str | None:
    """Return the speed-up of each depth over mlx-lm's own loop, by processor and by clock, from the study's report."""
    entries = report_of("engine", "fast-demo", folder).entries()
    if len(entries) < 2:
        return None
    spent: dict[tuple[str, str], list[float]] = defaultdict(list)
    for entry in entries:
        for kind in ("processor_s", "wall_s"):
            for way in {row["way"] for row in entry["rows"]}:
                spent[kind, way].append(min(row[kind] for row in entry["rows"] if row["way"] == way))
    said = []
    for way in sorted({way for _, way in spent} - {NATIVE}):
        for kind, name in (("processor_s", "processor time"), ("wall_s", "clock")):
            found = paired_ratio(spent[kind, NATIVE], spent[kind, way])
            said.append(f"{way} by {name} {found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]")
    return f"{'; '.join(said)}; {len(entries)} prompts, {entries[0]['rows'][0]['blas']}"


LINES = (
    Line("`make demo` without `LD_PRELOAD`: speed-up ≥ 1.5x at the depth it uses", f"make demo && {STUDIES}", demo),
    proved(
        "folders as published: chat templates, 16-bit targets, quantised drafters, aliases, conversations",
        "engine",
        "folders as published",
    ),
    proved("conversion read back with `gguf` bit for bit, q8 within its bound", "engine", "conversion"),
)
