"""An answer's text comes in pieces that add up to it, and costs each token the same however long it grows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.checkpoint import ASSETS
from engine.generation.text_stream import CONTEXT_TOKENS, OPEN_TOKENS, Pieces
from engine.stopping import cut_text
from engine.tokenizer import Tokenizer

VOCAB = 2048
STEP = 8


class Counting(Tokenizer):
    """The tokenizer of a shipped model that remembers its longest text."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.longest = 0

    def decode(self, ids: list[int] | tuple[int, ...]) -> str:
        self.longest = max(self.longest, len(ids))
        return super().decode(ids)


@pytest.fixture
def tokenizer() -> Counting:
    return Counting(ASSETS / "kakeya-tiny-gemma4")


@pytest.mark.parametrize("stops", [(), ("no such text",), ("e", "\n"), ("\ufffd\ufffd",)])
@pytest.mark.parametrize("seed", range(6))
def test_pieces_add_up_to_the_text_of_all_tokens(tokenizer: Counting, stops: tuple[str, ...], seed: int) -> None:
    chooser = random.Random(seed)
    # Single bytes make characters that never end, whole sentences in other scripts make those that span tokens.
    written = tokenizer.encode("naïve café — 数学の証明 😀👩‍👩‍👧 " * 30) if seed % 2 else ()
    ids = written or tuple(chooser.randrange(6, VOCAB) for _ in range(700))
    shown: list[str] = []
    pieces, at = Pieces(tokenizer, stops, shown.append), 0
    while at < len(ids):
        size = chooser.randrange(1, STEP + 1)
        pieces.add(ids[at : at + size], final=at + size >= len(ids))
        at += size
    whole = cut_text(tokenizer.decode(ids), stops)
    assert pieces.text == whole
    assert "".join(shown) == whole


def test_a_long_answer_is_not_read_again_for_every_step(tokenizer: Counting) -> None:
    ids = tokenizer.encode("def add(self, other):\n    return self.total + other\n" * 100)
    pieces = Pieces(tokenizer, (), lambda _: None)
    for index, token in enumerate(ids):
        pieces.add((token,), final=index == len(ids) - 1)
    assert len(ids) > 1000
    assert tokenizer.longest <= 2 * OPEN_TOKENS + CONTEXT_TOKENS
    assert pieces.text == tokenizer.decode(ids)
