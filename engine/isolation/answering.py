"""Decode what is asked over a pipe: the request's own side of a run that the host's code measures.

Whoever changes this changes nothing of what is measured: the host draws the prompts, holds the clock and checks each
token. Replies leave as soon as their tokens are there, the first one alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from engine.loading import Engine
from engine.measurement import arms
from engine.measurement.arms import SPECULATIVE, ArmSettings
from engine.stopping import Stopping


def answer(asks: int, replies: int, load: Callable[[], Engine], settings: Callable[[Engine], ArmSettings]) -> None:
    """Answer until nobody asks any more.

    Args:
        asks: descriptor to read asks from.
        replies: descriptor to write replies to.
        load: opens target and drafter, when the first ask comes.
        settings: says how this side decodes.
    """
    engine = decoding = None
    for ask in _asks(asks):
        if engine is None or decoding is None:
            engine = load()
            decoding = settings(engine)
        if ask["ask"] == "open":
            _reply(replies, ask["tag"], ready=True)
            continue
        stopping = Stopping(budget_tokens=ask["budget"], stop_ids=frozenset(ask["stop_ids"]))
        for step in arms.start(engine, SPECULATIVE, decoding, tuple(ask["ids"]), stopping).steps:
            if step.tokens:
                _reply(replies, ask["tag"], tokens=[int(token) for token in step.tokens])


def _asks(descriptor: int) -> Iterator[dict[str, Any]]:
    with os.fdopen(descriptor, "rb") as lines:
        for line in lines:
            yield json.loads(line)


def _reply(descriptor: int, tag: str, **values: object) -> None:
    os.write(descriptor, json.dumps({"tag": tag, **values}, separators=(",", ":")).encode() + b"\n")
