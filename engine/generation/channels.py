"""Which tokens of a chat answer are its thoughts and which are the answer, by the special tokens between them.

Three formats are known by the tokens that a tokenizer has: harmony's (gpt-oss), whose messages name a channel, and
those of Gemma 4 and Magistral, which enclose one. Elsewhere every token is the answer's, thoughts in ordinary tags
among them: templates that write such tags read them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.tokenizer import Tokenizer

FINAL = "final"
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
ENCLOSED = (("<|channel>", "<channel|>"), ("[THINK]", "[/THINK]"))
"""What stands around thoughts, in Gemma 4's answers and in Magistral's."""
LABEL = "thought\n"
"""What Gemma 4 calls the channel of its thoughts, on a line of its own."""
WRITTEN = frozenset(
    {"<|tool_call>", "<tool_call|>", '<|"|>', "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<|constrain|>"}
)
"""Special tokens that are a tool call's own text: without them its arguments cannot be read."""


@dataclass(slots=True)
class Channels:
    """The channels of one answer, token by token.

    Attributes:
        written: the special tokens that an answer's text keeps.
    """

    tokenizer: Tokenizer
    written: frozenset[int] = frozenset()
    _harmony: tuple[int, ...] = ()
    _enclosed: tuple[int, ...] = ()
    _answers: bool = True
    _header: list[int] | None = None
    _named: bool = False

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Channels:
        """Return those of the format that a tokenizer's special tokens belong to."""
        special = tokenizer.special
        written = frozenset(special[text] for text in WRITTEN if text in special)
        if all(text in special for text in HARMONY):
            return cls(tokenizer, written, _harmony=tuple(special[text] for text in HARMONY))
        for pair in ENCLOSED:
            if all(text in special for text in pair):
                return cls(tokenizer, written, _enclosed=tuple(special[text] for text in pair))
        return cls(tokenizer, written)

    def split(self, tokens: tuple[int, ...]) -> Iterator[tuple[bool, int]]:
        """Yield the next tokens without those that divide channels, each with whether it is the answer's."""
        for token in tokens:
            if token in self._harmony:
                self._turn_to(token)
            elif token in self._enclosed:
                self._answers = token != self._enclosed[0]
            elif self._header is not None:
                self._header.append(token)
            else:
                yield self._answers, token

    def answers(self, token: int) -> bool:
        """Take the next token and return whether it is the answer's text."""
        return any(is_answer for is_answer, _ in self.split((token,)))

    def _turn_to(self, token: int) -> None:
        """Read a token of harmony: a message is a header, which may name a channel, and a text."""
        start, channel, message, *_ = self._harmony
        if token in {start, channel}:
            self._header, self._named = [], token == channel
        elif token == message:
            name = self.tokenizer.decode(self._header or []).split() if self._named else [FINAL]
            self._answers, self._header, self._named = name[:1] == [FINAL], None, False
        else:
            self._header = None
