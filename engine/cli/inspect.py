"""``kakeya-engine inspect``: what a model folder says, as both backends read it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from engine.checkpoint import TOKENIZER, read_config, read_object, resolve_model
from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.drafters import dflash
from engine.loading import check_tensors
from engine.options import from_here
from engine.reader import model_name, read_checkpoint


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``kakeya-engine inspect``."""
    built = VerbParser(
        prog="kakeya-engine inspect",
        description="Say what a model folder holds and how it is read: layers, what ends an answer and which file says "
        "so, tensors, chat template, and what a library would compute otherwise.",
        epilog="exit codes: 3 a folder that is not decoded here, with the reason in one line",
    )
    built.add_argument("folder", help="folder or name of a target or of a DFlash drafter")
    built.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return built


def main(argv: list[str]) -> int:
    """Inspect a folder; exit 0 where it can be decoded."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    folder = resolve_model(from_here(options.folder) or "")
    if dflash.is_dflash(read_object(folder / "config.json")):
        record = _drafter(folder)
        _print(record, [f"{name}: {value}" for name, value in record.items() if value not in ([], None)], options)
        return 0
    read = read_checkpoint(folder)
    record = read.stated() | {"digest": read.digest(), "tokenizer_file": (folder / TOKENIZER).is_file()}
    _print(record, _lines(record), options)
    read.check_tensors()
    if read.tensors.count:
        check_tensors(folder)
    return 0


def _print(record: dict[str, Any], lines: list[str], options: argparse.Namespace) -> None:
    print(json.dumps(record) if options.json else "\n".join(lines))


def _drafter(folder: Path) -> dict[str, Any]:
    """Return what a DFlash drafter's folder says."""
    config = read_config(folder)
    parsed = dflash.parse(config)
    notes = []
    if "input_embedding_scale" not in {*config, *config.get("dflash_config", {})}:
        notes.append("no input_embedding_scale: the target's embedding rows are taken as they are stored")
    return {
        "name": model_name(folder),
        "drafter": "dflash-v1" if parsed.second is None else "dflash-v2",
        "block_size": parsed.block_size,
        "mask_token_id": parsed.mask_token_id,
        "target_layer_ids": list(parsed.target_layer_ids),
        "layers": [f"{'causal' if rule.causal else 'whole block'}, reach {rule.reach}" for rule in parsed.layers],
        "input_embedding_scale": parsed.input_embedding_scale,
        "notes": notes,
    }


def _lines(record: dict[str, Any]) -> list[str]:
    """Return a record as lines for a person."""
    structure, tensors, template = record["structure"], record["tensors"], record["template"]
    kinds = {kind: structure["kinds"].count(kind) for kind in dict.fromkeys(structure["kinds"])}
    lines = [
        f"{record['name']}: {structure['model_type']}, "
        + ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
        + (f", window {structure['window']}" if structure["window"] else "")
        + f", {record['positions']} positions, {record['dtype'] or 'no dtype named'}"
        + (f", packed as {record['quantisation']}" if record["quantisation"] else ""),
        f"head: {'the embedding' if structure['tied'] else 'its own'}"
        + (f", logits within {structure['soft_cap']}" if structure["soft_cap"] else ""),
    ]
    lines += [f"ends at {index}: {', '.join(files)}" for index, files in record["stops"].items()]
    lines += [] if record["stops"] else ["ends nowhere: no file names a token that ends an answer"]
    lines.append(
        f"tensors: {tensors['count']} ({', '.join(f'{count} {kind}' for kind, count in tensors['kinds'].items())})"
        + (f", {tensors['beside']} of them beside the text" if tensors["beside"] else "")
    )
    lines += (
        [f"head for several tokens: {tensors['head']} tensors; --drafter mtp drafts with it"] if tensors["head"] else []
    )
    lines += [
        f"{name}: {', '.join(tensors[name][:4])} ({len(tensors[name])})"
        for name in ("missing", "unused")
        if tensors[name]
    ]
    lines.append(
        "no chat template: a base model, which completes text"
        if template is None
        else f"chat template: {', '.join(template['names'])}"
        + (f"; reads {', '.join(template['arguments'])}" if template["arguments"] else "")
        + ("; writes the day into the prompt" if template["reads_clock"] else "")
    )
    lines.append(
        f"tokenizer: {record['tokenizer_class'] or 'no class named'}"
        + ("" if record["legacy"] is None else f", legacy {str(record['legacy']).lower()}")
        + ("" if record["tokenizer_file"] else f"; no {TOKENIZER}, without which no text is read or written")
    )
    lines += [f"set right: {note}" for note in record["mended"]] + [f"left out: {note}" for note in record["unapplied"]]
    lines += [f"differs between backends: {note}" for note in record["differing"]]
    return [*lines, f"digest of all this: {record['digest']}"]
