"""The card of an f_theta: what it was fitted on, what it misses, and how many hidden codes are found with it.

Everything in MODEL_CARD.md is in card.json; what is found comes from the committed report of a study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.digests import file_digest

FILES = ("config.json", "model.safetensors", "training.json")
ASKED = (
    "Contexts of about 1,900 tokens with 4 codes, forwarded with the layout itself and asked behind it. An answer "
    "counts when every token of it is the most likely one. Nothing follows for other models or texts."
)
STUDY = "make studies STUDY=restored-recall"


def card_of(folder: Path, recall: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the card of the f_theta in ``folder``.

    Args:
        folder: With its config, tensors and training record.
        recall: Rows of the study: layout, right, of, row_bytes, latent_bytes.
    """
    return {
        "name": folder.name,
        "kind": "ftheta",
        "sha256": {name: file_digest(folder / name) for name in FILES},
        "config": json.loads((folder / "config.json").read_text()),
        "training": json.loads((folder / "training.json").read_text()),
        "recall": list(recall),
    }


def card_markdown(card: dict[str, Any]) -> str:
    """Return MODEL_CARD.md of a card."""
    config, training = card["config"], card["training"]
    episodes, errors = training["episodes"], training["held_out_relative_error"]
    missed = [
        [layer, *(f"{errors[f'{layer}.{side}']:.3f}" for side in ("keys", "values"))] for layer in config["layers"]
    ]
    found = [
        [row["layout"], f"{row['right']} of {row['of']}", f"{row['row_bytes']:,}", f"{row['latent_bytes']:,}"]
        for row in card["recall"]
    ]
    what = (
        f"`--cache sink4+window64+ftheta{config['rank']}` makes rows behind the window of {config['target']['name']} "
        f"again from the {config['input']} of {config['drafter']['name']}. It is refused beside any other of either."
    )
    how = (
        f"Closed form over {episodes['training']} contexts of {training['tokens_an_episode']} tokens. Missed is the "
        f"share of the rows' squares on {episodes['held_out']} contexts of files and words that were held out."
    )
    parts = [
        f"# {card['name']}",
        f"f_theta of rank {config['rank']}, {training['parameters']:,} parameters, float32. Apache-2.0 like its code.",
        what,
        "## Fit",
        f"    {training['command']}",
        how,
        _table(["layer", "keys missed", "values missed"], missed),
        "## Hidden codes found",
        f"    {STUDY}",
        _table(["layout", "found", "bytes of rows", "bytes of latents"], found),
        ASKED,
    ]
    return "\n\n".join(parts) + "\n"


def write_card(folder: Path, recall: Sequence[dict[str, Any]]) -> None:
    """Write card.json and MODEL_CARD.md."""
    card = card_of(folder, recall)
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    (folder / "MODEL_CARD.md").write_text(card_markdown(card))


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))
