"""One answer on its way: what goes wrong in it ends it, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.decoding.depth import FixedDepth
from engine.generation.answer import GenerationRequest
from engine.serving.streams import Ask, Event, Failed, Stream, Ticket
from engine.structure.layout import CacheLayout


class FullCaches:
    """Caches on a device whose memory ran out: measuring them takes in rows that wait, which fails again."""

    def measured_bytes(self) -> int:
        raise RuntimeError("out of memory: the rows that wait")


def test_an_answer_that_cannot_even_be_measured_ends_alone(capsys: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = []
    request = GenerationRequest((2,), 1, frozenset(), (), CacheLayout.NATIVE, 512)
    engine: Any = SimpleNamespace(accept=None)  # without a target: its first forward fails
    caches: Any = FullCaches()
    tokenizer: Any = None
    stream = Stream(engine, tokenizer, Ticket(Ask(request), events.append), lambda: FixedDepth(0), caches)
    assert not stream.step()
    assert (stream.failed, [type(event) for event in events]) == (True, [Failed])
    assert "the rows that wait" in capsys.readouterr().err
