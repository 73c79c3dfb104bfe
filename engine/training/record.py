"""The training record that ends up in a model card."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

from engine.training.checkpoint import Resumable
from engine.training.corpus import SourceFile, corpus_record

PACKAGES = ("torch", "transformers", "tokenizers", "numpy")


def recorded_command(verb: str, options: dict[str, Any]) -> str:
    """Return the command line that repeats a training; paths are reduced to their last part."""
    parts = [f"kakeya-engine train {verb}"]
    for name, value in options.items():
        if value is None or value is False or name in {"verb", "work", "quiet"}:
            continue
        option = f"--{name.replace('_', '-')}"
        if value is True:
            parts.append(option)
            continue
        shown = value.name if isinstance(value, Path) else value
        if isinstance(value, tuple):
            shown = ",".join(map(str, value))
        parts += [] if shown == "" else [f"{option} {shown}"]
    return " ".join(parts)


def write_training(
    folder: Path, verb: str, options: dict[str, Any], *, trainer: Resumable, model: Any, files: tuple[SourceFile, ...]
) -> None:
    """Write training.json: the command, what it consumed, versions, corpus digest and the curve.

    Without files it consumed what is installed, which the versions stand for.
    """
    corpus = corpus_record(files) if files else {}
    listed = ("python", "files", "held_out_files", "characters", "listing_sha256")
    record = {
        "command": recorded_command(verb, options),
        "seed": options["seed"],
        "steps": trainer.step,
        "tokens": trainer.tokens,
        "trained_s": round(trainer.trained_s, 1),
        "threads": options["threads"],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in PACKAGES},
        "corpus": {key: corpus[key] for key in listed if key in corpus},
        "curve": trainer.curve.rows,
    }
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
