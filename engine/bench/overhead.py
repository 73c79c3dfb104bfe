"""What the decoding loop itself costs: a step's time minus the calls into backend and drafter it consists of.

The calls are timed where they happen, in the same run. On a lazy backend a forward is queued by one call and paid for
by the read in ``decide``, so all calls together are the forwards, and the rest of the step is the loop. What drafter
and target take each is told apart by a pass that waits for the device after every call: slower, so a pass of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.bench.peer import stopping
from engine.decoding.speculative import Parts, speculative
from engine.decoding.timing import Spent
from engine.loading import Engine
from engine.protocols import Depth
from engine.structure.layout import CacheLayout


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds of decoding and of the calls into drafter and target within it, over ``steps`` steps."""

    decode_s: float
    draft_s: float
    verify_s: float
    steps: int

    @property
    def calls_s(self) -> float:
        """Return the seconds of all calls."""
        return self.draft_s + self.verify_s

    @property
    def share(self) -> float:
        """Return the loop's own share of a step."""
        return (self.decode_s - self.calls_s) / self.decode_s if self.decode_s else 0.0


def loop_overhead(
    engine: Engine,
    prompt: tuple[int, ...],
    budget_tokens: int,
    depth: Depth,
    *,
    layout: CacheLayout = CacheLayout.NATIVE,
    wait: bool = False,
) -> Overhead:
    """Decode one prompt and split its decode time into calls and loop."""
    clock = engine.backend.clock
    ended_ns = clock.now_ns if wait else clock.host_ns
    drafting, verifying = Spent(clock.host_ns, ended_ns), Spent(clock.host_ns, ended_ns)
    sequence = engine.target.open(engine.drafter.capture, layout)
    parts = Parts(
        verifying.around(sequence, "forward_block", "crop", "committed", iterators=("decode_ahead",)),
        drafting.around(engine.drafter.open(), "observe", asks=("ask",)),
        verifying.around(engine.accept, "decide"),
        depth,
        clock,
        engine.resident,
    )
    steps = speculative(parts, prompt, stopping(engine, prompt, budget_tokens))
    next(steps)
    clock.now_ns()
    for spent in (drafting, verifying):
        spent.read_s()
    began_ns, count = clock.host_ns(), 0
    for _ in steps:
        count += 1
    decode_s = (clock.host_ns() - began_ns) / 1e9
    return Overhead(decode_s, drafting.read_s(), verifying.read_s(), count)
