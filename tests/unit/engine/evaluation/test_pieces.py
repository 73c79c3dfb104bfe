"""An answer's text comes in pieces that add up to it, and costs each token the same however long it grows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.checkpoint import ASSETS
from engine.generation.channels import LABEL
from engine.generation.text_stream import LONGEST_OPEN, Pieces, read_behind
from engine.stopping import Stopping, cut_text
from engine.tokenizer import Tokenizer
from engine.types import StopReason
from tests.fakes.tokenizers_of_families import KINDS, SCRIPTS, write_tokenizer

VOCAB = 2048
STEP = 8
WORDS = ("free", " human", " in", " dignity")
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_and_the_text_that_goes_on_from_it_are_the_text_of_both(tmp_path: Path, kind: str) -> None:
    """The first word of an answer keeps its space: without it a line of code is indented by one too few."""
    reading = Tokenizer(write_tokenizer(tmp_path, kind))
    ids = tuple(token for word in WORDS for token in reading.encode(word))
    for cut in range(1, len(ids)):
        prompt, answer = ids[:cut], ids[cut:]
        pieces = Pieces(read_behind(reading.decode, prompt), (), lambda _: None)
        for token in answer:
            pieces.add((token,), final=False)
        pieces.add((), final=True)
        assert reading.decode(prompt) + pieces.text == reading.decode(ids)


def test_a_stop_string_with_the_space_that_parts_an_answer_from_its_prompt_ends_it(tmp_path: Path) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, "byte_fallback"))
    prompt, answer = reading.encode("free"), reading.encode(" human")
    stopping = Stopping(99, stop_strings=(" hu",), decode=read_behind(reading.decode, prompt))
    assert stopping.cut(answer)[1] == StopReason.STOP_STRING


def test_what_follows_a_part_of_a_character_is_read_by_itself(tmp_path: Path) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, "byte_fallback"))
    ids = reading.encode("龘")
    assert read_behind(reading.decode, ids[:-1])(list(ids[-1:])) == "\ufffd"


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


@pytest.mark.parametrize("text", [f"{LABEL}Is 7 prime?", LABEL, "thought", "tho", "thoughtful", f"So. {LABEL}", ""])
def test_a_label_before_a_text_is_not_shown_and_what_only_begins_like_it_is(tmp_path: Path, text: str) -> None:
    reading = Tokenizer(write_tokenizer(tmp_path, "byte_level"))
    ids = reading.encode(text)
    assert reading.decode(ids) == text
    for size in (1, 3, len(ids) + 1):
        shown: list[str] = []
        pieces = Pieces(reading.decode, (), shown.append, LABEL)
        for at in range(0, len(ids), size):
            pieces.add(ids[at : at + size], final=False)
        pieces.add((), final=True)
        assert "".join(shown) == text.removeprefix(LABEL)


def test_a_long_answer_is_not_read_again_for_every_step(tokenizer: Counting) -> None:
    ids = tokenizer.encode("def add(self, other):\n    return self.total + other\n" * 100)
    assert len(ids) > 1000
    assert streamed(tokenizer, ids, [1]) == tokenizer.decode(ids)
    assert tokenizer.longest == len(ids)
    tokenizer.longest = 0
    streamed(tokenizer, ids, [1])
    assert tokenizer.longest <= 2 * LONGEST_OPEN
