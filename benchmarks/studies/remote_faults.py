"""How long a fault of a remote drafter holds a text up, and whether it changes it: each struck once, in mid-text.

Every draft is awaited, so that nothing hides a fault; a server may be silent for ``DEADLINE_S``.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.benchmarks.remote import RemoteTrial
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
from tests.fakes.fault_proxy import fault_proxy
from tests.fakes.struck_stream import FAULTS, StruckStream

PAIR, TOKENS, STRUCK_AT, DEADLINE_S = "kakeya-tiny-gemma4", 256, 48, 5.0
MESSAGES = {fault.__name__.replace("_", " "): fault for fault in FAULTS}
LINKS = {"link cut": "cut", "link reset": "reset", "link half open": "half-open"}
SIGNALS = {"server stopped": signal.SIGSTOP, "server killed": signal.SIGKILL}
RESTART = "server restarted"


def cases() -> Sequence[str]:
    """Return every fault."""
    return (*MESSAGES, *LINKS, *SIGNALS, RESTART)


@cache
def _engine() -> Any:
    target = resolve_model(PAIR)
    return open_engine(load_backend("mlx"), str(target), own_drafter(target))


def run(case: str) -> list[Row]:
    """Decode a text plainly and with the fault in its middle; return how long its steps took."""
    engine, armed = _engine(), []
    prompt = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts[0].ids
    plain = RemoteTrial(engine, TOKENS).decode(prompt, None, FixedDepth(0))
    with ExitStack() as stack:
        process = DrafterProcess(["--target", PAIR])
        stack.callback(process.close)
        stack.callback(_carry_on, process)
        proxy = stack.enter_context(fault_proxy(process.address))
        channel = DrafterChannel(proxy.address, DFLASH)
        stack.callback(channel.close)
        model = remote_model(channel, engine.backend, engine.target, engine.folder, patience_s=DEADLINE_S)
        model = replace(model, connect=lambda listener: StruckStream(channel.connect(listener), armed))

        def strike() -> None:
            if case in MESSAGES:
                armed.append(MESSAGES[case])
            elif case in LINKS:
                proxy.tell(LINKS[case])
            elif case in SIGNALS:
                os.kill(process.process.pid, SIGNALS[case])
            else:
                process.close()
                again = DrafterProcess(["--target", PAIR, "--address", process.address])
                stack.callback(again.close)

        return [{"fault": case, "deadline_s": DEADLINE_S} | _struck(engine, model, prompt, plain.tokens, strike)]


def _struck(
    engine: Any, model: Any, prompt: tuple[int, ...], plain: tuple[int, ...], strike: Callable[[], None]
) -> dict[str, Any]:
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    depth = FixedDepth(3, waits=True)
    parts = Parts(sequence, model.open(), engine.accept, depth, engine.backend.clock, engine.resident)
    tokens, before_s, after_s, drafted, last_s = [], [], [], 0, time.perf_counter()
    struck = False
    for step in speculative(parts, prompt, Stopping(TOKENS)):
        took_s = time.perf_counter() - last_s
        tokens += step.tokens
        (after_s if struck else before_s).append(took_s)
        drafted += struck and step.drafted > 0
        if not struck and len(tokens) >= STRUCK_AT:
            strike()
            struck = True
        last_s = time.perf_counter()
    return {
        "same_output": tuple(tokens) == plain,
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
