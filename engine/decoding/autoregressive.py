"""Plain autoregressive decoding over the same interfaces: the oracle of every exactness test.

Deliberately synchronous and free of drafting, cropping and pipelining, so that nothing it shares with the speculative
loop could hide a mistake of that loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.errors import NonFiniteLogitsError
from engine.protocols import Accept, Sequence
from engine.stopping import Stopping
from engine.types import Draft, Step


def autoregressive(
    sequence: Sequence, accept: Accept, prompt: tuple[int, ...], stopping: Stopping, chunk: int = 512
) -> Iterator[Step]:
    """Yield one step per token, the first from the prefill.

    Raises:
        NonFiniteLogitsError: If a forward yields no usable token.
    """
    stopping.room_tokens = sequence.max_positions - len(prompt)
    forwards = list(sequence.prefill(prompt, chunk))
    outcome, prefill = accept.first(forwards[-1]), True
    while True:
        if not outcome.tokens:
            raise NonFiniteLogitsError(
                f"the target has no usable next token after position {sequence.length}: {outcome.guard}"
            )
        emitted, stop = stopping.cut(outcome.tokens)
        yield Step(
            tokens=emitted,
            committed=1,
            position=sequence.length,
            target_forwards=len(forwards) if prefill else 1,
            host_syncs=1,
            prefill=prefill,
            stop=stop,
        )
        if stop is not None:
            return
        position, prefill = sequence.length, False
        forward = sequence.forward_block(outcome.bonus, Draft())
        sequence.crop(position + 1)
        outcome = accept.decide(Draft(), forward)
