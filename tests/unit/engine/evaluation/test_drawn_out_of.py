"""A nonce draws prompts of a set that nobody can guess: there are at least two for each one that is drawn."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files

import pytest

from engine.errors import UsageError
from engine.measurement.selection import Prompt, PromptSet, read_packaged
from engine.studies.bounded_recall import DRAWN_OUT_OF, PROFILES, drawn_prompts


def some(count: int) -> PromptSet:
    prompts = tuple(Prompt(f"p{index}", "needle", (index, 1, 2), f"{index:064x}", "code") for index in range(count))
    return PromptSet("some", "made", prompts)


def test_a_draw_of_nearly_a_whole_set_is_refused() -> None:
    chosen = drawn_prompts(some(120), 3, 60, "nonce")
    assert len(set(chosen)) == 60
    assert set(chosen) != set(drawn_prompts(some(120), 3, 60, "another"))
    for count in (61, 119):
        with pytest.raises(UsageError, match="nobody may know which: expected at least 120"):
            drawn_prompts(some(count), 3, 60, "nonce")
    with pytest.raises(UsageError, match="has 0 prompts of at least 4 tokens"):
        drawn_prompts(some(120), 4, 60, "nonce")


@pytest.mark.parametrize(
    "preset", ["k3-step1-incremental", "cuda-step1-incremental", "k3-step2-fused", "k3-step2-fused-allmlx"]
)
def test_a_preset_draws_of_a_set_that_is_large_enough_and_is_confirmed_on_the_same(preset: str) -> None:
    commands = tomllib.loads(files("bridge.presets").joinpath(f"{preset}.toml").read_text())["commands"]
    named = {command["argv"][command["argv"].index("--set") + 1] for command in commands}
    (name,) = named
    rows = json.loads(read_packaged(name))["prompts"]
    texts = {row["text"] for row in rows if row["expected"] is not None and len(row["text"]) > 3000}
    assert len(texts) >= DRAWN_OUT_OF * PROFILES["claim"]


def test_a_claim_asks_as_many_prompts_as_the_gate_expects() -> None:
    profile = tomllib.loads(files("bridge.gate").joinpath("profiles", "claim.toml").read_text())
    assert profile["prompts_min_count"]["value"] == PROFILES["claim"]
