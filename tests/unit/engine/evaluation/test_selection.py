"""Prompts are pinned, chosen by rule, and never both warm-up and measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.errors import PromptError, UsageError
from engine.measurement.selection import Prompt, PromptSet, load_prompts
from engine.reports import token_digest


class Letters:
    """A tokenizer whose ids are code points."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(char) for char in text)


def prompt(index: int, greedy_tokens: int | None = None) -> Prompt:
    return Prompt(f"p{index}", "structured", (index,), token_digest((index,)), None, greedy_tokens)


def numbered(count: int) -> PromptSet:
    return PromptSet("set", "rule", tuple(prompt(index) for index in range(count)))


def write_set(folder: Path, **row: object) -> str:
    rows = [{"id": "a", "kind": "raw", "text": "ab", "token_digest": {}, "expected": None} | row]
    path = folder / "set.json"
    path.write_text(json.dumps({"schema": 1, "set": "s", "rule": "r", "prompts": rows}))
    return str(path)


def test_launches_measure_distinct_prompts_and_warm_up_on_the_last_ones() -> None:
    measured_ids: list[str] = []
    for launch in range(5):
        measured, warmups = numbered(70).select(launch, 5, 12, 2)
        measured_ids += [item.id for item in measured]
        assert [item.id for item in warmups] == ["p68", "p69"]
    assert measured_ids == [f"p{index}" for index in range(60)]


def test_a_set_that_is_too_small_or_repeats_itself_is_refused() -> None:
    with pytest.raises(UsageError, match=r"61 usable prompts.*need 62"):
        numbered(61).select(0, 5, 12, 2)
    twice = PromptSet("set", "rule", (prompt(0), prompt(1), prompt(0)))
    with pytest.raises(UsageError, match="repeats a prompt"):
        twice.select(0, 1, 2, 1)


def test_prompts_known_to_end_within_the_budget_are_left_out() -> None:
    mixed = PromptSet("set", "rule", (prompt(0, 256), prompt(1, 257), prompt(2), prompt(3, 10)))
    assert [item.id for item in mixed.lasting(256).prompts] == ["p1", "p2"]


def test_a_spread_reaches_over_the_whole_file() -> None:
    assert [item.ids[0] for item in numbered(100).spread(5).prompts] == [0, 20, 40, 60, 80]
    assert len(numbered(3).spread(5).prompts) == 3


def test_a_nonce_draws_other_prompts_in_another_order() -> None:
    first, other = ([item.id for item in numbered(50).drawn(5, nonce).prompts] for nonce in ("a", "b"))
    assert first == [item.id for item in numbered(50).drawn(50, "a").prompts][:5]
    assert len({*first, *other}) > 5


def test_a_prompt_that_tokenises_differently_is_refused(tmp_path: Path) -> None:
    good = write_set(tmp_path, token_digest={"tiny": token_digest((97, 98))}, greedy_tokens={"tiny": 7})
    loaded = load_prompts(good, Letters(), "tiny")  # type: ignore[arg-type]
    assert loaded.prompts[0].ids == (97, 98)
    assert loaded.prompts[0].greedy_tokens == 7
    assert load_prompts(good, Letters(), "other").prompts[0].greedy_tokens is None  # type: ignore[arg-type]
    bad = write_set(tmp_path, token_digest={"tiny": "0" * 64})
    with pytest.raises(PromptError, match="pins 000000000000"):
        load_prompts(bad, Letters(), "tiny")  # type: ignore[arg-type]


def test_an_unknown_set_is_named() -> None:
    with pytest.raises(UsageError, match="no prompt set 'nothing'"):
        load_prompts("nothing", Letters(), "tiny")  # type: ignore[arg-type]
