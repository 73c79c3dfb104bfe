"""The preset of the guide is one that loads."""

from __future__ import annotations

import re
from pathlib import Path

from bridge.presets import load

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "add-a-preset.md"


def test_the_complete_preset_of_the_guide_loads():
    text = GUIDE.read_text(encoding="utf-8")
    block = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    preset = load("example-count", block[1].encode())
    assert set(preset.params) == {"depth", "full"}
    for field in type(preset).model_fields:
        if field not in {"schema_version", "workload", "read_only"}:  # the last two only a workload folder has
            assert re.search(rf"\b{field.rstrip('s')}", block[1]), f"the guide does not show {field}"
