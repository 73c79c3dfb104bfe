"""The shipped f_theta's card describes the files beside it, and says of recall what the committed study says."""

from __future__ import annotations

import json

from benchmarks.studies.report import report_of
from engine.cards.card_text import NOTES
from engine.checkpoint import ASSETS, folder_digest
from engine.restoration.card import card_markdown, card_of
from engine.restoration.settings import parse

FOLDER = ASSETS / "kakeya-tiny-qwen3-ftheta64"
TOLD = ("native", "sink4+window64", "sink4+window64+exact5", "sink4+window64+ftheta64, as shipped")


def test_the_card_is_made_of_its_files_and_of_the_study() -> None:
    card = json.loads((FOLDER / "card.json").read_text())
    rows = {entry["case"]: entry["rows"][0] for entry in report_of("restored-recall").entries()}
    assert card == card_of(FOLDER, [rows[case] for case in TOLD])
    assert (FOLDER / "MODEL_CARD.md").read_text() == card_markdown(card)


def test_it_is_bound_to_the_pair_beside_it() -> None:
    settings = parse(json.loads((FOLDER / "config.json").read_text()), FOLDER.name)
    for name, digest in (settings.target, settings.drafter):
        assert digest == folder_digest(ASSETS / name)
    assert (FOLDER / "model.safetensors").stat().st_size < 2_000_000


def test_what_the_gemma_card_says_of_bytes_follows_from_the_configs() -> None:
    target, drafter = (
        json.loads((ASSETS / name / "config.json").read_text())
        for name in ("kakeya-tiny-gemma4", "kakeya-tiny-gemma4-dflash")
    )
    full = target["layer_types"].count("full_attention")
    replaced = full * 2 * target["num_global_key_value_heads"] * target["global_head_dim"] * 4
    drafter_bytes = drafter["num_hidden_layers"] * 2 * drafter["num_key_value_heads"] * drafter["head_dim"] * 4
    assert replaced == drafter_bytes == 1024
    assert "1,024 bytes" in NOTES["kakeya-tiny-gemma4"]
