"""Prompts that cannot be known beforehand: their words are drawn from a nonce that the run draws when it begins.

What comes out depends on every word of the header, so an answer kept from before is an answer to something else. The
gate draws the same texts again from the nonce of its record; a test holds the two together.
"""

from __future__ import annotations

import hashlib
import re

from engine.errors import UsageError
from engine.measurement.selection import Prompt, PromptSet
from engine.reports import token_digest
from engine.tokenizer import Tokenizer

NAME = "nonce-structured"
RULE = (
    "The header of a class with six members and the parts of its body; class and members are drawn from the words of "
    "code-structured by sha256 over the run's nonce, the number of the prompt and the place of the word."
)
MEMBERS = 6
WORDS_MIN = 64
HEADER = (
    'class {title}:\n    """Hold one {noun}: {members}.\n\n'
    "    Parts: __init__, to_dict, from_dict, __repr__, __eq__, update.\n"
    '    """\n\n    fields = ({quoted})'
)
_LIST = re.compile(r"^[^:]*:\n? *\"\"\"Hold one (\w+): ([a-z, ]+)\.$", re.MULTILINE)


def words_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that class headers name, sorted, each once.

    Raises:
        UsageError: they are too few to draw from.
    """
    words = {word for text in texts for match in _LIST.finditer(text) for word in match.group(2).split(", ")}
    if len(words) < WORDS_MIN:
        raise UsageError(f"{len(words)} words to draw prompts from; expected at least {WORDS_MIN}")
    return tuple(sorted(words))


def draw(nonce: str, number: int, words: tuple[str, ...]) -> str:
    """Return the text of one prompt.

    Args:
        nonce: hex digits, drawn when the launch began.
        number: of the prompt in its launch, from 0.
        words: what names are drawn from.
    """
    left, drawn = list(words), []
    for place in range(MEMBERS + 1):
        value = int.from_bytes(hashlib.sha256(f"{nonce}/{number}/{place}".encode()).digest(), "big")
        drawn.append(left.pop(value % len(left)))
    noun, members = drawn[0], drawn[1:]
    quoted = ", ".join(f'"{member}"' for member in members)
    return HEADER.format(title=noun.capitalize(), noun=noun, members=", ".join(members), quoted=quoted)


def drawn_prompts(nonce: str, launch: int, count: int, words: tuple[str, ...], tokenizer: Tokenizer) -> PromptSet:
    """Return the prompts of one launch, tokenised."""
    prompts = []
    for number in range(count):
        ids = tokenizer.encode(draw(nonce, number, words))
        prompts.append(Prompt(f"nonce-{launch}-{number:03d}", "structured", ids, token_digest(ids)))
    return PromptSet(NAME, RULE, tuple(prompts))
