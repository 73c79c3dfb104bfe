"""Bytes that a bounded cache holds by context, beside the native one: buffers of cache, pool, index and drafter.

Bytes do not depend on what a target makes of a context, so the packaged targets are opened with more positions than
they were measured for.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.study import Entry, Row, Study
from engine.loading import load_backend, resolve_model
from engine.structure.layout import CacheLayout
from engine.types import Draft

BACKENDS = ("torch", "mlx")
TARGETS = ("kakeya-tiny-qwen3", "kakeya-tiny-gemma4")
CONTEXTS = (1024, 2048, 4096, 8192, 32768)
POSITIONS = 32768 + 64
STEPS, ROWS, CHUNK = 4, 8, 512
DRAFTER_CONTEXT = 256
KEPT = "sink4+window64"
LAYOUTS = ("native", f"{KEPT}+stream", f"{KEPT}+pages16x10+stream", f"{KEPT}+pages16x10")


def cases() -> Sequence[str]:
    """Return every target, backend and context."""
    return [f"{target}, {backend}, {count}" for count in CONTEXTS for target in TARGETS for backend in BACKENDS]


def run(case: str, layouts: Sequence[str] = LAYOUTS) -> list[Row]:
    """Return a row for every layout: bytes held after some blocks, of the cache and of the drafter's own context."""
    name, backend, context = case.split(", ")
    engine = load_backend(backend, "cpu" if backend == "torch" else None)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as root:
        folder = _longer(resolve_model(name), Path(root))
        target = engine.load_target(folder)
        drafter = engine.load_dflash(resolve_model(f"{name}-dflash"), target)
        for layout in layouts:
            sequence = target.open(drafter.capture, CacheLayout.parse(layout))
            model = drafter if layout == "native" else drafter.bounded(DRAFTER_CONTEXT)
            proposer, rows_seen = model.open(), 0
            prompt = tuple(6 + index * 7919 % 2000 for index in range(int(context)))
            for forward in sequence.prefill(prompt, CHUNK):
                proposer.observe(
                    rows_seen, prompt[rows_seen : rows_seen + forward.rows], sequence.committed(forward, forward.rows)
                )
                rows_seen += forward.rows
            before = sequence.page_counts()
            for _ in range(STEPS):
                forward = sequence.forward_block(7, Draft((9,) * (ROWS - 1), ROWS - 1))
                sequence.crop(sequence.length - ROWS + 1)
                proposer.observe(rows_seen, (7,), sequence.committed(forward, 1))
                proposer.measured_bytes()  # what waits is projected, as a draft would
                rows_seen += 1
            after = sequence.page_counts()
            rows.append(
                {
                    "layout": layout,
                    "context": int(context),
                    "kv_bytes": sequence.measured_bytes(),
                    "pool_bytes": after.pool_bytes,
                    "index_bytes": after.index_bytes,
                    "drafter_bytes": proposer.measured_bytes(),
                    "pages_moved": after.pages_moved - before.pages_moved,
                    "bytes_read_a_block": (after.bytes_read - before.bytes_read) // STEPS,
                    "rows_shown": after.rows_shown,
                }
            )
            sequence.close()
    return rows


def _longer(folder: Path, root: Path) -> Path:
    """Return a copy of a target's folder that holds more positions."""
    copied = shutil.copytree(folder, root / folder.name)
    path = copied / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": POSITIONS}))
    return copied


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return by target and layout how bytes grow from the shortest to the longest context, and how far below native."""
    sizes: dict[tuple[str, str], dict[int, int]] = {}
    for entry in entries:
        where = entry["case"].rpartition(", ")[0]
        for row in entry["rows"]:
            sizes.setdefault((where, row["layout"]), {})[row["context"]] = row["kv_bytes"] + row["drafter_bytes"]
    lines = []
    for (where, layout), by_context in sorted(sizes.items()):
        longest, native = max(by_context), sizes[where, "native"]
        if layout != "native":
            growth = by_context[longest] / by_context[min(by_context)] - 1
            below = native[longest] / by_context[longest]
            grown = f"{growth:+.1%} from {min(by_context)} to {longest}"
            lines.append(f"{where}, {layout}: {grown}, {below:.1f}x below native")
    return lines


STUDY = Study("evicted-bytes", "How many bytes does a bounded cache hold by context?", cases, run, "two hours", summary)
