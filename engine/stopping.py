"""Where a sequence ends, decided on token ids.

Order of the rules within one step: cancellation (checked before the step), then per token in emission order stop ids,
stop strings, the loop guard, the budget. A stop token is emitted and is the last token; a stop string ends the output
with the token that completes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.types import StopReason


@dataclass
class Stopping:
    """The stop rules of one sequence and what they have seen so far.

    ``answers`` is asked of every emitted token in turn; stop strings are looked for in the text of those it takes.
    """

    budget_tokens: int
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    decode: Callable[[list[int]], str] | None = None
    loop_guard: Callable[[list[int]], bool] | None = None
    cancelled: Callable[[], bool] = lambda: False
    answers: Callable[[int], bool] = lambda _: True
    emitted: list[int] = field(default_factory=list)
    room_tokens: int | None = None
    """New tokens that the context has room for; a loop fills it in, None until then."""
    _answer: list[int] = field(default_factory=list)

    @property
    def remaining_tokens(self) -> int:
        """Tokens that may still be emitted."""
        limit = self.budget_tokens if self.room_tokens is None else min(self.budget_tokens, self.room_tokens)
        return limit - len(self.emitted)

    def cut(self, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], StopReason | None]:
        """Emit ``tokens`` up to the first one that ends the sequence.

        Returns:
            The emitted prefix and the reason, None while the sequence goes on.
        """
        for index, token in enumerate(tokens):
            self.emitted.append(token)
            reason = self._reason(token)
            if reason is not None:
                return tokens[: index + 1], reason
        return tokens, None

    def _reason(self, token: int) -> StopReason | None:
        is_answer = bool(self.stop_strings) and self.answers(token)
        if token in self.stop_ids:
            return StopReason.EOS
        if is_answer and self._completes_a_stop_string(token):
            return StopReason.STOP_STRING
        if self.loop_guard is not None and self.loop_guard(self.emitted):
            return StopReason.LOOP_GUARD
        if self.remaining_tokens <= 0:
            return StopReason.BUDGET if len(self.emitted) >= self.budget_tokens else StopReason.CONTEXT
        return None

    def _completes_a_stop_string(self, token: int) -> bool:
        if self.decode is None:
            return False
        self._answer.append(token)
        # A token holds at least one byte, so the tail below can contain any stop string that ends at this token.
        longest = max(len(text.encode()) for text in self.stop_strings)
        tail = self.decode(self._answer[-(longest + 4) :])
        return any(text in tail for text in self.stop_strings)


def cut_text(text: str, stop_strings: tuple[str, ...]) -> str:
    """Return ``text`` up to the earliest stop string."""
    ends = [text.find(stop) for stop in stop_strings if stop in text]
    return text[: min(ends)] if ends else text
