"""How long a fault of a remote drafter holds a text up, and whether it changes it: each struck once, in mid-text.

Every draft is awaited, so that nothing hides a fault; a server may be silent for ``DEADLINE_S``. What a step waited for
its draft is told apart from the step itself, whose forwards take as long on a busy machine without any fault.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.bench.remote import RemoteTrial
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.methods import DFLASH
from engine.distributed.rpc.remote import remote_model
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import load_prompts
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import Draft
from tests.fakes.fault_proxy import fault_proxy
from tests.fakes.struck_stream import FAULTS, StruckStream

PAIR, TOKENS, STRUCK_AT, DEADLINE_S = "kakeya-tiny-gemma4", 256, 48, 5.0
MESSAGES = {fault.__name__.replace("_", " "): fault for fault in FAULTS}
LINKS = {"link cut": "cut", "link reset": "reset", "link half open": "half-open"}
SIGNALS = {"server stopped": signal.SIGSTOP, "server killed": signal.SIGKILL}
RESTART, RESTART_TOKENS, DRAFTED_AGAIN = "server restarted", 2048, 16
APART = ", waits apart"


def cases() -> Sequence[str]:
    """Return every fault; entries without ``APART`` are older, and tell of whole steps only."""
    return [f"{fault}{APART}" for fault in faults()]


def faults() -> Sequence[str]:
    """Return the name of every fault."""
    return (*MESSAGES, *LINKS, *SIGNALS, RESTART)


class ClockedDrafter:
    """A drafter that notes for how many seconds each of its drafts was waited for."""

    def __init__(self, inner: Any) -> None:
        self.waited_s: list[float] = []
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def ask(self, bonus: int, position: int, count: int) -> ClockedAsk:
        """Ask, and note what taking the answer takes."""
        return ClockedAsk(self._inner.ask(bonus, position, count), self.waited_s)


@dataclass(frozen=True, slots=True)
class ClockedAsk:
    """A draft that is under way, and where to note how long it was waited for."""

    pending: Any
    waited_s: list[float]

    def take(self, deadline_s: float | None = None) -> Draft:
        """Return the draft."""
        began_s = time.perf_counter()
        draft: Draft = self.pending.take(deadline_s)
        self.waited_s.append(time.perf_counter() - began_s)
        return draft


@cache
def _engine() -> Any:
    target = resolve_model(PAIR)
    return open_engine(load_backend("mlx"), str(target), own_drafter(target))


def run(case: str) -> list[Row]:
    """Decode a text plainly and with the fault in its middle; return how long its steps took."""
    fault, engine, armed = case.removesuffix(APART), _engine(), []
    tokens = RESTART_TOKENS if fault == RESTART else TOKENS
    prompt = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts[0].ids
    plain = RemoteTrial(engine, tokens).decode(prompt, None, FixedDepth(0))
    with ExitStack() as stack:
        process = DrafterProcess(["--target", PAIR])
        stack.callback(process.close)
        stack.callback(_carry_on, process)
        again = stack.enter_context(_Again(process))
        proxy = stack.enter_context(fault_proxy(process.address))
        channel = DrafterChannel(proxy.address, DFLASH)
        stack.callback(channel.close)
        model = remote_model(channel, engine.backend, engine.target, engine.folder, patience_s=DEADLINE_S)
        model = replace(model, connect=lambda listener: StruckStream(channel.connect(listener), armed))

        def strike() -> None:
            if fault in MESSAGES:
                armed.append(MESSAGES[fault])
            elif fault in LINKS:
                proxy.tell(LINKS[fault])
            elif fault in SIGNALS:
                os.kill(process.process.pid, SIGNALS[fault])
            else:
                again.start()

        found = _struck(engine, model, prompt, plain.tokens, strike, again.done)
        away = {"server_away_s": again.away_s()} if fault == RESTART else {}
        return [{"fault": fault, "deadline_s": DEADLINE_S} | found | away]


class _Again:
    """The server killed, and started again at its address while the text goes on."""

    def __init__(self, process: DrafterProcess) -> None:
        self._process = process
        self._worker = ThreadPoolExecutor(1)
        self._starting: Future[tuple[DrafterProcess, float]] | None = None

    def __enter__(self) -> _Again:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.shutdown()
        if self._starting is not None and self._starting.exception() is None:
            self._starting.result()[0].close()

    def start(self) -> None:
        """Kill the server, and have another started meanwhile."""
        self._process.process.kill()
        began_s = time.perf_counter()

        def started() -> tuple[DrafterProcess, float]:
            other = DrafterProcess(["--target", PAIR, "--address", self._process.address])
            return other, time.perf_counter() - began_s

        self._starting = self._worker.submit(started)

    def done(self) -> bool:
        """Say whether nothing is started, or what was is there."""
        return self._starting is None or self._starting.done()

    def away_s(self) -> float:
        """Return for how many seconds nobody served."""
        assert self._starting is not None
        return self._starting.result()[1]


def _struck(
    engine: Any,
    model: Any,
    prompt: tuple[int, ...],
    plain: tuple[int, ...],
    strike: Callable[[], None],
    back: Callable[[], bool],
) -> dict[str, Any]:
    """Decode as many tokens as ``plain`` has, or until drafts came again for a while from a server that was away."""
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    depth, drafter = FixedDepth(3, waits=True), ClockedDrafter(model.open())
    parts: Any = Parts(sequence, drafter, engine.accept, depth, engine.backend.clock, engine.resident)
    tokens, before_s, after_s, drafted, again, last_s = [], [], [], 0, 0, time.perf_counter()
    struck, waited_before = False, 0
    for step in speculative(parts, prompt, Stopping(len(plain))):
        took_s = time.perf_counter() - last_s
        tokens += step.tokens
        (after_s if struck else before_s).append(took_s)
        drafted += struck and step.drafted > 0
        again += struck and step.drafted > 0 and back()
        if again >= DRAFTED_AGAIN and len(tokens) >= TOKENS:
            break
        if not struck and len(tokens) >= STRUCK_AT:
            waited_before = len(drafter.waited_s)
            strike()
            struck = True
        last_s = time.perf_counter()
    return {
        "same_output": tuple(tokens) == plain[: len(tokens)],
        "tokens": len(tokens),
        "longest_wait_s": max(drafter.waited_s[waited_before:]),
        "long_waits": sum(waited_s >= DEADLINE_S / 2 for waited_s in drafter.waited_s[waited_before:]),
        "longest_step_s": max(after_s),
        "median_step_s": statistics.median(before_s),
        "drafted_steps_after": drafted,
        "steps_after": len(after_s),
    }


def _carry_on(process: DrafterProcess) -> None:
    """Let a stopped server end."""
    if process.process.poll() is None:
        process.process.send_signal(signal.SIGCONT)


STUDY = Study("remote-faults", "How long does a fault of a remote drafter hold a text up?", cases, run)
