"""Turns of a conversation go on with the caches of the turn before, and decode what a fresh start decodes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import ASSETS
from engine.cli import chat
from engine.decoding.depth import FixedDepth
from engine.drafters.ngram import NgramModel
from engine.generation.answer import Answer, GenerationRequest, generate
from engine.generation.conversation import Conversation
from engine.loading import Engine, load_backend, open_engine
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

NAMES = {"gemma4": "kakeya-tiny-gemma4", "qwen3": "kakeya-tiny-qwen3"}
FIRST = tuple(range(20, 50))
CASES = [
    ("mlx", "qwen3", "dflash"),
    ("mlx", "gemma4", "dflash"),
    ("torch", "gemma4", "dflash"),
    ("mlx", "qwen3", "ngram"),
    pytest.param("torch", "qwen3", "dflash", marks=pytest.mark.slow),
    pytest.param("mlx", "qwen3", "model", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def opened() -> Callable[[str, str, str], Engine]:
    engines: dict[tuple[str, str, str], Engine] = {}

    def get(backend: str, family: str, drafter: str) -> Engine:
        target = ASSETS / NAMES[family]
        named = {"dflash": f"{target}-dflash", "ngram": "ngram", "model": str(target)}[drafter]
        if (backend, family, drafter) not in engines:
            engines[backend, family, drafter] = open_engine(load_backend(backend), str(target), named)
        return engines[backend, family, drafter]

    return get


def answer(engine: Engine, prompt: tuple[int, ...], conversation: Conversation | None, budget: int = 20) -> Answer:
    request = GenerationRequest(prompt, budget, frozenset(), (), CacheLayout.NATIVE, 512)
    return generate(
        engine, Tokenizer(engine.folder), request, (engine.accept, FixedDepth(5)), conversation=conversation
    )


@pytest.mark.parametrize(("backend", "family", "drafter"), CASES)
def test_a_later_turn_decodes_what_a_fresh_start_decodes(
    opened: Callable[[str, str, str], Engine], backend: str, family: str, drafter: str
) -> None:
    engine = opened(backend, family, drafter)
    conversation = Conversation(engine, CacheLayout.NATIVE)
    first = answer(engine, FIRST, conversation)
    assert first.reused_tokens == 0
    # The turn goes on, then it goes back into the answer, then it is another one altogether.
    longer = (*FIRST, *first.tokens, 60, 61, 62)
    for prompt, least in (
        (longer, len(longer) - 12),
        ((*FIRST, *first.tokens[:5], 70, 71), len(FIRST)),
        ((9, 8, 7), 0),
    ):
        later, fresh = answer(engine, prompt, conversation), answer(engine, prompt, None)
        assert later.tokens == fresh.tokens
        assert least <= later.reused_tokens < len(prompt)
        assert later.drafted_tokens > 0 or drafter == "ngram"
        # The drafter's context came along: it proposes as well as one that was shown everything anew.
        assert abs(later.acceptance_length - fresh.acceptance_length) < 0.5


@pytest.mark.ci
def test_where_the_window_has_moved_on_the_caches_begin_anew(opened: Callable[[str, str, str], Engine]) -> None:
    engine = opened("mlx", "gemma4", "dflash")
    window = engine.target.info.sliding_window
    assert window is not None
    conversation = Conversation(engine, CacheLayout.NATIVE)
    long = tuple(20 + index % 400 for index in range(3 * window))
    answer(engine, long, conversation, budget=2 * window)
    back = answer(engine, (*long[:window], 5, 6), conversation)
    assert back.reused_tokens == 0
    assert back.tokens == answer(engine, (*long[:window], 5, 6), None).tokens


def test_a_decode_that_broke_off_leaves_nothing_to_go_on_with(opened: Callable[[str, str, str], Engine]) -> None:
    engine = opened("mlx", "qwen3", "dflash")
    conversation = Conversation(engine, CacheLayout.NATIVE)
    answer(engine, FIRST, conversation)
    conversation.resume((*FIRST, 60))
    assert answer(engine, FIRST, conversation).reused_tokens == 0


def test_ngram_forgets_what_it_goes_back_over() -> None:
    rewound, other = NgramModel().open(), NgramModel().open()
    tokens = (1, 2, 3, 1, 2, 4, 1, 2)
    rewound.observe(0, tokens, None)
    rewound.rewind(5)
    other.observe(0, tokens[:5], None)
    for drafter in (rewound, other):
        drafter.observe(5, (1,), None)
    assert rewound.tokens == other.tokens
    assert rewound.ask(2, 6, 3) == other.ask(2, 6, 3)


def test_chat_answers_line_by_line_and_holds_what_was_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the class Point\n\nand now Line\n"))
    assert chat.main(["--target", NAMES["qwen3"], "--max-new", "8", "--json"]) == 0
    turns: list[Any] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(turns) == 2
    assert turns[0]["reused_tokens"] == 0
    # The answer's role is written otherwise in the history than in the prompt that asked for it.
    assert turns[1]["reused_tokens"] >= turns[0]["prompt_tokens"] - 4
