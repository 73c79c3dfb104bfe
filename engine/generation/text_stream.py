"""Growing token lists as text pieces that never have to be taken back.

Knows nothing of decoding but the tokens it brings, and reads each of them a bounded number of times however long the
answer grows. Text is read from tokens that begin where a text ended for good, never from a token inside a character.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.stopping import cut_text

Decode = Callable[[list[int]], str]
INCOMPLETE = "\ufffd"
ENDING_TOKENS = 8
"""Of a prompt, behind which its answer is read: more than one, for some of them write nothing."""
LONGEST_OPEN = 64
"""Tokens that may stay open: far more than a character spans."""


def read_behind(decode: Decode, prompt: tuple[int, ...]) -> Decode:
    """Return what reads tokens as the text that they add to a prompt: a tokenizer drops a space where a text begins.

    Tokens behind a part of a character are read by themselves.
    """
    ending = list(prompt[-ENDING_TOKENS:])
    text = decode(ending)
    if text.endswith(INCOMPLETE):
        return decode
    return lambda tokens: decode([*ending, *tokens])[len(text) :]


class Pieces:
    """The text of one answer.

    A character may span tokens and a stop string may span steps: the tail that could still change is held back.

    Args:
        decode: returns the text of tokens.
        stop_strings: what the text is cut before.
        show: gets the text piece by piece.
        label: what the text may begin with that is not shown.
    """

    def __init__(
        self, decode: Decode, stop_strings: tuple[str, ...], show: Callable[[str], None], label: str = ""
    ) -> None:
        self._decode = decode
        self._stop_strings = stop_strings
        self._show = show
        self._label = label
        self._settled = ""
        # Settled tokens read again before the open ones: a tokenizer drops a space where a text begins.
        self._context: list[int] = []
        self._open: list[int] = []
        self._shown = 0
        self.text = ""

    def add(self, tokens: tuple[int, ...], *, final: bool) -> None:
        """Take the next tokens and show what can no longer change, everything if they are the last."""
        self._open.extend(tokens)
        text = self._text_of(self._open)
        self.text = cut_text(self._settled + text, self._stop_strings)
        end = len(self.text)
        if not final:
            end -= max((len(stop) - 1 for stop in self._stop_strings), default=0)
            while end > self._shown and self.text[end - 1] == INCOMPLETE:
                end -= 1
        if self._shown == 0:
            may_be_label = not final and self._label.startswith(self.text)
            self._shown = len(self._label) if self.text.startswith(self._label) else 0
            end = 0 if may_be_label else end
        if end > self._shown:
            self._show(self.text[self._shown : end])
            self._shown = end
        if text and not text.endswith(INCOMPLETE):
            self._settle(len(self._open), text)
        elif len(self._open) > LONGEST_OPEN:
            self._settle_some(text)

    def _text_of(self, tokens: list[int]) -> str:
        """Return the text of tokens behind the context's."""
        before = self._decode(self._context)
        return self._decode([*self._context, *tokens])[len(before) :]

    def _settle(self, count: int, text: str) -> None:
        """Read the first ``count`` open tokens, which are ``text``, no more but as the context of what follows."""
        self._settled += text
        self._context, self._open = self._open[:count], self._open[count:]

    def _settle_some(self, text: str) -> None:
        """Settle what lies before the newest characters of a text that has never ended with a whole one.

        Such a text is none that a model was taught: bytes that make no character, or tokens that write nothing.
        """
        for count in range(len(self._open) - LONGEST_OPEN // 2, 0, -1):
            before = self._text_of(self._open[:count])
            if text.startswith(before):
                self._settle(count, before)
                return
