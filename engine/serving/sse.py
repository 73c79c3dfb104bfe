"""An answer as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.serving.answers import envelope, usage
from engine.serving.refusals import refuse
from engine.serving.streams import Event, Failed, Piece


@dataclass(frozen=True, slots=True)
class Streaming:
    """How one answer is streamed.

    Attributes:
        number: of the answer, the same in every chunk.
        model: the name that the client asked for.
        exact: what the tokens are equal to, in a word.
        prompt_tokens: of its prompt.
        chat: whether it is a message and no completion.
        wants_usage: whether a last chunk says what the answer took.
        created: the second of Unix time that every chunk says.
    """

    number: str
    model: str
    exact: str
    prompt_tokens: int
    chat: bool
    wants_usage: bool
    created: int = field(default_factory=lambda: int(time.time()))

    async def lines(self, event: Event, events: asyncio.Queue[Event]) -> AsyncIterator[bytes]:
        """Yield the chunks of an answer whose first event is there."""
        if self.chat:
            yield self._chunk([self._choice({"role": "assistant", "content": ""})])
        while isinstance(event, Piece):
            if event.text:
                yield self._chunk([self._choice({"reasoning_content" if event.thought else "content": event.text})])
            event = await events.get()
        if isinstance(event, Failed):
            yield _data(refuse(event.error).body())
            return
        yield self._chunk([self._choice({}, event.reason)])
        if self.wants_usage:
            yield self._chunk([], usage([event], [self.prompt_tokens], self.exact))
        yield b"data: [DONE]\n\n"

    def _chunk(self, choices: Sequence[dict[str, Any]], spent: dict[str, Any] | None = None) -> bytes:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        whole = envelope(kind, self.number, self.model, choices, self.created)
        return _data(whole | {"usage": spent} if self.wants_usage else whole)

    def _choice(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        shown = {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        return {"index": 0, **shown, "logprobs": None, "finish_reason": reason}


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
