"""The pages under docs/gate are what the rules say: `python -m tests.drift --write` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from bridge.gate.catalogue import pages, rules_catalogue

FOLDER = Path(__file__).parents[4] / "docs" / "gate"


def test_the_committed_pages_are_the_generated_ones():
    apart = {"forgeries.md", "from-the-seed.md", "score.md", "speed-claims.md"}
    written = {p.name: p.read_text("utf-8") for p in FOLDER.glob("*.md") if p.name not in apart}
    assert written == pages()


def test_the_seeds_table_names_only_rules_that_exist():
    named = set(re.findall(r"\[(G[0-9]-[A-Z0-9-]+)\]", (FOLDER / "from-the-seed.md").read_text("utf-8")))
    assert named
    assert named <= {entry.code for entry in rules_catalogue()}
