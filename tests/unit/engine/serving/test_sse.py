"""An answer as server-sent events in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from engine.serving.sse import Streaming
from engine.serving.streams import Event, Finished, Piece


async def chunks(streaming: Streaming, *events: Event) -> list[dict[str, Any]]:
    """Return the bodies of a stream without its end mark."""
    queue = asyncio.Queue[Event]()
    for event in events[1:]:
        queue.put_nowait(event)
    lines = [line async for line in streaming.lines(events[0], queue)]
    assert lines[-1] == b"data: [DONE]\n\n"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("chat", [True, False])
def test_every_chunk_of_an_answer_says_the_second_in_which_it_began(chat: bool) -> None:
    before = int(time.time())
    streaming = Streaming("a-1", "model", "greedy-fp32", 3, chat=chat, wants_usage=True)
    assert before <= streaming.created <= time.time()
    streaming = Streaming("a-1", "model", "greedy-fp32", 3, chat=chat, wants_usage=True, created=7)
    bodies = asyncio.run(chunks(streaming, Piece("one"), Piece(" two"), Finished(None, None)))
    assert len(bodies) == 4 + chat
    assert {body["created"] for body in bodies} == {7}
