"""Needle episodes: code with secret codes hidden in it, and questions about them at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOTE = "\n# NOTE: the secret code for {key} is {code}."
QUESTION = "\n# Q: what is the secret code for {key}?\n# A:"
ANSWER = " the secret code for {key} is {code}."


@dataclass(frozen=True)
class Needle:
    """One hidden fact: the key words and the digits to be retrieved."""

    key: str
    code: str

    @property
    def note(self) -> str:
        """The line hidden in the filler."""
        return NOTE.format(key=self.key, code=self.code)

    @property
    def question(self) -> str:
        """The question, up to and including the answer's mark."""
        return QUESTION.format(key=self.key)

    @property
    def answer(self) -> str:
        """The answer that follows the question's last character."""
        return ANSWER.format(key=self.key, code=self.code)


def make_needles(rng: np.random.Generator, words: tuple[str, ...], count: int) -> tuple[Needle, ...]:
    """Make `count` needles with distinct keys of one or two words and codes of 4 to 6 digits."""
    needles: dict[str, Needle] = {}
    while len(needles) < count:
        chosen = rng.choice(len(words), size=int(rng.integers(1, 3)), replace=False)
        key = " ".join(words[i] for i in chosen)
        code = "".join(str(d) for d in rng.integers(0, 10, size=int(rng.integers(4, 7))))
        needles.setdefault(key, Needle(key, code))
    return tuple(needles.values())


def hide(filler: list[int], lines: list[list[int]], depths: list[float], newline_ids: frozenset[int]) -> list[int]:
    """Insert each of `lines` before the first line break at or past its depth (0 to 1) of `filler`.

    Args:
        filler: Token ids of the surrounding code.
        lines: Token ids of each line to hide; each starts with its own line break.
        depths: Where each line goes, as a share of the filler.
        newline_ids: Ids of tokens that start with a line break.
    """
    places = sorted(zip((int(d * len(filler)) for d in depths), range(len(lines)), strict=True))
    result: list[int] = []
    done = 0
    for place, index in places:
        end = max(place, done)
        while end < len(filler) and filler[end] not in newline_ids:
            end += 1
        result += filler[done:end] + lines[index]
        done = end
    return result + filler[done:]
