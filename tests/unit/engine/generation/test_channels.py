"""A turn's thoughts stand apart from its answer, and its tool calls keep what their arguments are written in."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.generation.channels import ENCLOSED, HARMONY, WRITTEN, Channels
from engine.stopping import Stopping
from engine.tokenizer import Tokenizer
from engine.types import StopReason
from tests.fakes.tokenizers_of_families import KINDS

CALL = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'
TURN = (
    "<|channel|>analysis<|message|>The user wants a prime.<|end|><|start|>assistant<|channel|>final<|message|>"
    "7 is prime.<|return|>"
)
ANSWERS = {
    "harmony": (
        TURN,
        "The user wants a prime.",
        "7 is prime.",
    ),
    "harmony's call": (
        "<|channel|>commentary to=functions.prime <|constrain|>json<|message|>{}<|call|>",
        "{}",
        "",
    ),
    "harmony without a channel": ("Seven.<|return|>", "", "Seven."),
    "gemma": (
        "<|channel>thought\nIs 7 prime? Yes.\n<channel|>7 is prime.",
        "thought\nIs 7 prime? Yes.\n",
        "7 is prime.",
    ),
    "gemma's call": (CALL, "", CALL),
    "magistral": ("[THINK]Is it?[/THINK]7 is prime.", "Is it?", "7 is prime."),
    "tags": ("<think>Is it?</think>7 is prime.", "", "<think>Is it?</think>7 is prime."),
}
FORMATS = {"harmony": HARMONY, "gemma": ENCLOSED[0], "magistral": ENCLOSED[1], "tags": ()}


def tokenizer_of(folder: Path, name: str) -> Tokenizer:
    built = KINDS["byte_level"]()
    built.add_special_tokens([*FORMATS[name.partition("'")[0].split()[0]], *sorted(WRITTEN)])
    built.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_turn_is_divided_by_its_special_tokens_wherever_a_step_ends(tmp_path: Path, name: str) -> None:
    raw, thought, answer = ANSWERS[name]
    tokenizer = tokenizer_of(tmp_path, name)
    ids = tokenizer.encode(raw)
    for size in (1, 4, len(ids)):
        channels = Channels.of(tokenizer)
        steps = [ids[at : at + size] for at in range(0, len(ids), size)]
        marked = [pair for step in steps for pair in channels.split(step)]
        texts = [
            tokenizer.decode([token for side, token in marked if side is answers], channels.written)
            for answers in (False, True)
        ]
        assert texts == [thought, answer]


@pytest.mark.parametrize(("name", "stop"), [("harmony", "prime"), ("harmony", "final"), ("gemma", "is")])
def test_a_stop_string_in_a_thought_or_in_a_channel_s_name_does_not_end_a_turn(
    tmp_path: Path, name: str, stop: str
) -> None:
    raw, _, answer = ANSWERS[name]
    tokenizer = tokenizer_of(tmp_path, name)
    ids = tokenizer.encode(raw.replace("Is 7", "What is 7"))
    assert stop in tokenizer.decode(ids).partition("7 is")[0]
    stopping = Stopping(99, stop_strings=(stop,), decode=tokenizer.decode, answers=Channels.of(tokenizer).answers)
    emitted, reason = stopping.cut(ids)
    ends_in_answer = stop in answer
    assert reason is (StopReason.STOP_STRING if ends_in_answer else None)
    assert (len(emitted) == len(ids)) is not ends_in_answer
    written = [token for is_answer, token in Channels.of(tokenizer).split(emitted) if is_answer]
    assert tokenizer.decode(written).startswith("7 is")
