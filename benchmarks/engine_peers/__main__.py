"""Measure the engine beside its peers: `python -m benchmarks.engine_peers`.

Runs the engine's own benchmarks one after the other, each in a process of its own, and keeps their reports under
`docs/evidence/engine` with a page that says what they found. Resumable: a report that is there is not made again, so
delete those to repeat. Needs a machine on which nothing else runs, and half an hour or more of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.engine_peers.first_layers import first_layers
from bridge.system.process import run
from engine.bench.contest import Entry, standings

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "docs" / "evidence" / "engine"
ASSETS = ROOT / "engine" / "assets"
DRAFT = "DRAFT"
"""Stands for the folder of the small draft model, which is made anew from the target."""
DRAFT_LAYERS = 2
LIMIT_S = 3600.0
SAME_DRAFTER = {
    "transformers native DFlash": "-dflash,",
    "transformers assisted": "-first-layers,",
    "mlx-lm draft model": "-first-layers,",
}
"""Ways of the libraries, and what the names of the engine's contestants with the same drafter hold."""
ENTRY_FIELDS = [field.name for field in fields(Entry)]

COMPARE = ["compare", "--prompts", "30", "--repeats", "1", "--max-new", "192"]
COMPARE_QWEN3 = [
    "compare", "--repeats", "1", "--max-new", "128", "--target", "kakeya-tiny-qwen3",
    "--draft-model", DRAFT, "--depths", "3,7,auto",
]  # fmt: skip
STUDIES = {
    "controller-mlx": [
        "controller", "--backend", "mlx", "--prompts", "30", "--max-new", "512", "--worlds", "useless,long,turning",
    ],
    "compare-mlx-gemma4": [*COMPARE, "--backend", "mlx", "--depths", "3,7,auto"],
    "compare-torch-gemma4": [*COMPARE, "--backend", "torch", "--depths", "3,7,auto"],
    "compare-mlx-qwen3": [*COMPARE_QWEN3, "--backend", "mlx", "--prompts", "30"],
    "compare-torch-qwen3": [*COMPARE_QWEN3, "--backend", "torch", "--prompts", "30"],
    "controller-torch": [
        "controller", "--backend", "torch", "--prompts", "30", "--max-new", "512", "--worlds", "useless,long,turning",
    ],
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(STUDIES)} (default: all)")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in STUDIES]
    if unknown:
        parser.error(f"unknown study {unknown[0]!r}; known: {', '.join(STUDIES)}")
    failed = []
    for name in [] if arguments.page else arguments.names or list(STUDIES):
        if (REPORTS / f"{name}.json").exists():
            print(f"{name}: there already", file=sys.stderr)
        elif not measure(name):
            failed.append(name)
    (REPORTS / "README.md").write_text("\n".join(page()) + "\n")
    return 1 if failed else 0


def measure(name: str) -> bool:
    """Run one study; return whether it ended well. Its report is kept only then."""
    print(f"{name}: load before {os.getloadavg()[0]:.2f} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        if DRAFT in STUDIES[name]:
            first_layers(ASSETS / "kakeya-tiny-qwen3", out / "kakeya-tiny-qwen3-first-layers", DRAFT_LAYERS)
        words = [str(out / "kakeya-tiny-qwen3-first-layers") if word == DRAFT else word for word in STUDIES[name]]
        ended = run([sys.executable, "-m", "engine.cli", "bench", *words, "--out", str(out)], timeout_s=LIMIT_S)
        print(ended.stdout.decode(errors="replace"), end="", flush=True)
        if ended.exit_code:
            print(ended.stderr.decode(errors="replace")[-2000:], file=sys.stderr)
            return False
        REPORTS.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(next(out.glob("*.json")), REPORTS / f"{name}.json")
    return True


def page() -> Iterator[str]:
    """Yield the lines of the page about all reports that are there."""
    yield "# The engine beside its peers\n"
    yield (
        "Decode times of the same prompts on the same weights within one run; ratios are totals over prompts with a "
        "95 % interval\n(delta method on the logarithm, Student's t). Tokens were checked against plain decoding: "
        "whoever emitted others has no ratio.\n`python -m benchmarks.engine_peers` made the reports and this page.\n"
    )
    for name, words in STUDIES.items():
        path = REPORTS / f"{name}.json"
        if not path.exists():
            continue
        report = json.loads(path.read_bytes())
        yield f"## {name}\n"
        shown = " ".join("FIRST_LAYERS" if word == DRAFT else word for word in words)
        yield f"[{path.name}]({path.name}): `kakeya-engine bench {shown}`, started {report['started_at']}."
        if DRAFT in words:
            made = "`python -m benchmarks.engine_peers.first_layers`"
            yield f"Draft model: the target's first {DRAFT_LAYERS} layers ({made})."
        yield ""
        yield from _controller(report) if "curves" in report["rows"] else _standings(report)
        yield ""


def _standings(report: dict[str, Any]) -> Iterator[str]:
    reference = report["config"]["reference"]
    speeds = [row["speed"] for row in report["rows"]["standings"] if row["speed"] is not None]
    yield f"{_turns(report)} {_prompts(speeds)}\n"
    yield f"| contestant | tokens/s | speed against {reference} |"
    yield "|---|---|---|"
    for row in report["rows"]["standings"]:
        speed = row["speed"]
        without = "other tokens" if row["different_prompts"] else "no ratio"
        speed_text = without if speed is None else _ratio(speed)
        yield f"| {row['peer']} | {row['tokens_per_s']:.1f} | {speed_text} |"
    entries = [Entry(**{name: row[name] for name in ENTRY_FIELDS}) for row in report["rows"]["entries"]]
    for peer, kind in SAME_DRAFTER.items():
        if not any(entry.peer == peer for entry in entries):
            continue
        yield f"\nThe same drafter, in the engine against {peer}:\n"
        for row in standings(entries, peer):
            if row.peer == peer and row.different_prompts:
                yield f"- no ratio: {peer} gave other tokens on {row.different_prompts} of {row.prompts} prompts"
            if kind in row.peer and row.speed is not None:
                yield f"- {row.peer}: {_ratio(asdict(row.speed))}"


def _controller(report: dict[str, Any]) -> Iterator[str]:
    curves = report["rows"]["curves"]
    budgets = sorted(next(iter(curves.values())), key=int)
    yield "Plain decode time over the cold controller's, by tokens emitted; 1 is as fast, below 1 slower."
    yield f"{_turns(report)} {_prompts([speed for by in curves.values() for speed in by.values()])}\n"
    yield "| world | " + " | ".join(budgets) + " |"
    yield "|---" * (len(budgets) + 1) + "|"
    for world, by in curves.items():
        yield f"| {world} | " + " | ".join(_ratio(by[tokens]) for tokens in budgets) + " |"


def _turns(report: dict[str, Any]) -> str:
    tokens = report["config"].get("slice_tokens")
    return "Whole decodes in a drawn order." if tokens is None else f"Turns of {tokens} tokens in a drawn order."


def _prompts(speeds: Sequence[dict[str, Any]]) -> str:
    counts = sorted({speed["n"] for speed in speeds})
    if not counts:
        return "No contestant has a ratio."
    return f"{' to '.join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))} prompts."


def _ratio(speed: dict[str, Any]) -> str:
    return f"{speed['value']:.3f} [{speed['low']:.3f}, {speed['high']:.3f}]"


if __name__ == "__main__":
    raise SystemExit(main())
