"""What the guides promise of presets holds: a preset loads, an arm may be asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.presets.installed import load

ROOT = Path(__file__).parents[4]
GUIDES = ROOT / "docs" / "guides"
GUIDE = GUIDES / "add-a-preset.md"
CODED = ["full", *(f"{codec}{bits}" for codec in ("affine", "d4x", "e8x") for bits in (4, 8))]


def test_the_complete_preset_of_the_guide_loads():
    text = GUIDE.read_text(encoding="utf-8")
    block = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    preset = load("example-count", block[1].encode())
    assert set(preset.params) == {"depth", "full"}
    for field in type(preset).model_fields:
        if field not in {"schema_version", "workload", "read_only"}:  # the last two only a workload folder has
            assert re.search(rf"\b{field.rstrip('s')}", block[1]), f"the guide does not show {field}"


@pytest.mark.parametrize(
    "name", ["k3-step1-incremental", "cuda-step1-incremental", "k3-step2-fused", "k3-step2-fused-allmlx"]
)
def test_a_preset_of_bounded_caches_takes_every_arm_of_its_guide(name):
    text = (GUIDES / "bounded-caches.md").read_text(encoding="utf-8").partition("## Arms")[2].partition("\n## ")[0]
    table = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert {"sink4+window64", "sink4+window64+identity"} <= set(table)
    pattern = load(name, (ROOT / "bridge" / "presets" / f"{name}.toml").read_bytes()).params["arms"].pattern
    for arms in (*table, *CODED, ",".join(CODED)):
        assert re.fullmatch(pattern, arms), arms
