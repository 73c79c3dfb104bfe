"""Growing token lists as text pieces that never have to be taken back.

Knows nothing of decoding but the tokens it brings, and reads each of them a bounded number of times however long the
answer grows.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.stopping import cut_text
from engine.tokenizer import Tokenizer

INCOMPLETE = "\ufffd"
OPEN_TOKENS = 64
"""Tokens whose text may still change: far more than a character spans."""
CONTEXT_TOKENS = 8
"""Settled tokens read again before the open ones: a tokenizer may drop a space at the beginning of what it decodes."""


class Pieces:
    """The text of one answer.

    A character may span tokens and a stop string may span steps: the tail that could still change is held back.
    """

    def __init__(self, tokenizer: Tokenizer, stop_strings: tuple[str, ...], show: Callable[[str], None]) -> None:
        self._tokenizer = tokenizer
        self._stop_strings = stop_strings
        self._show = show
        self._settled = ""
        self._tokens: list[int] = []
        self._context = 0
        self._shown = 0
        self.text = ""

    def add(self, tokens: tuple[int, ...], *, final: bool) -> None:
        """Take the next tokens and show what can no longer change, everything if they are the last."""
        self._tokens.extend(tokens)
        self.text = cut_text(self._settled + self._open(self._tokens), self._stop_strings)
        end = len(self.text)
        if not final:
            end -= max((len(stop) - 1 for stop in self._stop_strings), default=0)
            while end > self._shown and self.text[end - 1] == INCOMPLETE:
                end -= 1
        if end > self._shown:
            self._show(self.text[self._shown : end])
            self._shown = end
        if len(self._tokens) >= 2 * OPEN_TOKENS:
            self._settle(len(self._tokens) - OPEN_TOKENS)

    def _open(self, tokens: list[int]) -> str:
        """Return the text of ``tokens`` behind their context's."""
        before = self._tokenizer.decode(tokens[: self._context]) if self._context else ""
        return self._tokenizer.decode(tokens)[len(before) :]

    def _settle(self, count: int) -> None:
        """Read the first ``count`` tokens no more but for context, unless a character may go on behind them."""
        text = self._open(self._tokens[:count])
        if not text.endswith(INCOMPLETE):
            self._settled += text
            self._tokens, self._context = self._tokens[count - CONTEXT_TOKENS :], CONTEXT_TOKENS
