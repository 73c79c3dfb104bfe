"""An answer's text comes in pieces that add up to it, and costs each token the same however long it grows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.checkpoint import ASSETS
from engine.generation.text_stream import LONGEST_OPEN, Pieces
from engine.stopping import Stopping, cut_text
from engine.tokenizer import Tokenizer
from engine.types import StopReason
from tests.fakes.tokenizers_of_families import KINDS, SCRIPTS, write_tokenizer

VOCAB = 2048
STEP = 8
LONG = 6
"""How often a line is repeated: beyond 128 tokens in most scripts."""


class Counting(Tokenizer):
    """A tokenizer that remembers its longest text."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.longest = 0

    def decode(self, ids: list[int] | tuple[int, ...], written: frozenset[int] = frozenset()) -> str:
        self.longest = max(self.longest, len(ids))
        return super().decode(ids, written)


@pytest.fixture
def tokenizer() -> Counting:
    return Counting(ASSETS / "kakeya-tiny-gemma4")


def streamed(tokenizer: Tokenizer, ids: tuple[int, ...], sizes: list[int], stops: tuple[str, ...] = ()) -> str:
    """Return what is shown of ids that come in steps of these sizes, again and again."""
    shown: list[str] = []
    pieces, at = Pieces(tokenizer.decode, stops, shown.append), 0
    for index in range(len(ids)):
        if at < len(ids):
            size = sizes[index % len(sizes)]
            pieces.add(ids[at : at + size], final=at + size >= len(ids))
            at += size
    assert "".join(shown) == pieces.text
    return pieces.text


@pytest.mark.parametrize("stops", [(), ("no such text",), ("e", "\n"), ("\ufffd\ufffd",)])
@pytest.mark.parametrize("seed", range(6))
def test_pieces_add_up_to_the_text_of_all_tokens(tokenizer: Counting, stops: tuple[str, ...], seed: int) -> None:
    chooser = random.Random(seed)
    # Single bytes make characters that never end, whole sentences in other scripts make those that span tokens.
    written = tokenizer.encode("naïve café — 数学の証明 😀👩‍👩‍👧 " * 30) if seed % 2 else ()
    ids = written or tuple(chooser.randrange(6, VOCAB) for _ in range(700))
    sizes = [chooser.randrange(1, STEP + 1) for _ in range(50)]
    assert streamed(tokenizer, ids, sizes, stops) == cut_text(tokenizer.decode(ids), stops)


@pytest.mark.parametrize("kind", KINDS)
def test_every_script_comes_whole_through_every_kind_of_tokenizer(tmp_path: Path, kind: str) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, kind))
    for line in SCRIPTS.values():
        ids = reading.encode(line * LONG)
        for sizes in ([1], [3], [5]):
            assert streamed(reading, ids, sizes).lstrip(" ") == line * LONG


@pytest.mark.parametrize("kind", ["byte_fallback", "gemma", "unigram"])
def test_bytes_that_make_no_character_spoil_none_beside_them(tmp_path: Path, kind: str) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, kind))
    written = reading.encode("龘" * 100)
    broken = reading.encode("龘")[-1:]
    assert reading.decode(written + broken) == "龘" * 100 + "\ufffd"
    chooser = random.Random(3)
    ids = tuple(chooser.randrange(4, 500) for _ in range(700))
    for sizes in ([1], [3], [16, 2]):
        assert streamed(reading, ids, sizes) == reading.decode(ids)


def test_a_stop_string_of_bytes_ends_with_its_own_token(tmp_path: Path) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, "byte_fallback"))
    line = SCRIPTS["amharic"]
    ids = reading.encode(line)
    stopping = Stopping(len(ids) + 9, stop_strings=(line[-1],), decode=reading.decode)
    assert stopping.cut(ids + reading.encode(line)) == (ids, StopReason.STOP_STRING)


def test_a_long_answer_is_not_read_again_for_every_step(tokenizer: Counting) -> None:
    ids = tokenizer.encode("def add(self, other):\n    return self.total + other\n" * 100)
    assert len(ids) > 1000
    assert streamed(tokenizer, ids, [1]) == tokenizer.decode(ids)
    assert tokenizer.longest == len(ids)
    tokenizer.longest = 0
    streamed(tokenizer, ids, [1])
    assert tokenizer.longest <= 2 * LONGEST_OPEN
