"""What cache layouts and dtypes cost in nats: how much less probable a model holds real text on them.

The texts are code and prose that are on every machine: a module of the standard library, and the licence and guides of
this repository. Real models are those that `kakeya-engine models add` made; without one the packaged target is scored.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Entry, Row, Study, rows_of

PACKAGED = "kakeya-tiny-gemma4"
MODELS = ("SmolLM2-135M-Instruct", "gemma-3-270m")
LAYOUTS = ("native", "affine8", "affine4", "e8x4", "d4x4", "sink4+window64", "sink4+window64+pages16x10")
CHARACTERS = 2400
TEXTS = {"code": Path(textwrap.__file__), "prose": ROOT / "docs" / "guides" / "worst-day.md"}
TIMEOUT_S = 1200


def cases() -> list[str]:
    """Return a case for each layout in float32, and one for bfloat16, of every model."""
    return [
        f"{model} {dtype} {layout}"
        for model in (PACKAGED, *MODELS)
        for dtype, layout in (*(("float32", layout) for layout in LAYOUTS), ("bfloat16", "native"))
    ]


def run(case: str) -> list[Row]:
    """Score both texts on the caches and in the dtype of a case."""
    model, dtype, layout = case.split()
    rows = []
    for name, path in TEXTS.items():
        text = path.read_text(encoding="utf-8")[:CHARACTERS]
        command = [sys.executable, "-m", "engine.cli", "score", "-", "--target", model, "--dtype", dtype]
        done = subprocess.run(
            [*command, "--cache", layout, "--json"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-300:])
        record = json.loads(done.stdout)
        facts = ("target", "digest", "backend", "dtype", "cache", "scored_tokens", "nats_per_token")
        rows.append({"text": name} | {fact: record[fact] for fact in facts})
    return rows


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return, by model and text, what each case costs beside float32 on the native cache."""
    rows = rows_of(entries)
    exact = {
        (row["target"], row["text"]): row["nats_per_token"]
        for row in rows
        if (row["dtype"], row["cache"]) == ("float32", "native")
    }
    lines = []
    for row in rows:
        base = exact.get((row["target"], row["text"]))
        if base is not None:
            cost = row["nats_per_token"] - base
            lines.append(
                f"{row['target']} {row['text']} {row['dtype']} {row['cache']}: {row['nats_per_token']:.4f} nats "
                f"a token ({cost:+.4f})"
            )
    return lines


STUDY = Study(
    "nats", "what a cache layout or a dtype costs in nats on real text?", cases, run, "20 minutes, one thread", summary
)
