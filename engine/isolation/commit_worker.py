"""Decode with the engine of one checkout, in a process of its own; a parent asks and takes the time.

Started by path as ``python -I commit_worker.py CHECKOUT DESCRIPTOR``: the checkout comes first on the module path, so
`engine` is the checkout's and not the host's. Asks come as JSON lines on standard input, answers go to the descriptor.
Knows no prompt text, no clock and nothing of the other checkout; uses only what checkouts have had in common for long:
`engine.loading`, `engine.measurement.arms` and the fields of a decoding step.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARM = "speculative"


class Worker:
    """An engine of a checkout, opened once."""

    def __init__(self, checkout: Path, answer: Callable[[dict[str, Any]], None]) -> None:
        self._checkout, self._answer = checkout, answer
        self._engine: Any = None
        self._settings: Any = None
        self._fields: tuple[str, ...] = ()
        self._begun: dict[int, tuple[Any, Any]] = {}

    def open(self, ask: dict[str, Any]) -> None:
        """Load the models and say what was loaded, with the code of the checkout."""
        from engine.decoding.depth import FixedDepth
        from engine.loading import load_backend, open_engine
        from engine.measurement import arms

        if ask["backend"] == "mlx":
            # Not all checkouts leave it out themselves: transformers, which mlx-lm needs, imports it for nothing.
            modules: dict[str, Any] = sys.modules
            modules.setdefault("torch", None)
        engine = open_engine(load_backend(ask["backend"]), ask["target"], ask["drafter"])
        block = engine.drafter.info.block_size
        depth = min(ask["depth"], block - 1) if block else ask["depth"]
        self._fields = tuple(ask["fields"])
        self._engine = engine
        # By way of the module that takes it: commits differ in where the class lives.
        layout = vars(arms)["CacheLayout"].NATIVE
        self._settings = arms.ArmSettings(layout, lambda: FixedDepth(depth), ask["chunk"])
        blas = engine.backend.blas()
        self._answer(
            {
                "target": dataclasses.asdict(engine.target.info),
                "drafter": dataclasses.asdict(engine.drafter.info),
                "depth": depth,
                "code_path": arms.code_path(engine, ARM),
                "backend": engine.backend.name,
                "device": engine.backend.device,
                "versions": engine.backend.versions(),
                "blas": None if blas is None else dataclasses.asdict(blas),
            }
        )

    def begin(self, ask: dict[str, Any]) -> None:
        """Forward a prompt and answer with its first token; the rest waits, under the number that was given."""
        from engine.measurement import arms
        from engine.stopping import Stopping

        stopping = Stopping(budget_tokens=ask["budget"], stop_ids=frozenset(ask["stop_ids"]))
        running = arms.start(self._engine, ARM, self._settings, tuple(ask["ids"]), stopping)
        steps = iter(running.steps)
        first = next(steps)
        self._begun[ask["number"]] = running, steps
        self._answer({"step": self._plain(first), "kv_bytes": running.kv_bytes()})

    def go_on(self, ask: dict[str, Any]) -> None:
        """Decode what waits to its end: answer at the last token, and then with the bytes that are held."""
        running, steps = self._begun.pop(ask["number"])
        rest = list(steps)
        self._answer({"steps": [self._plain(step) for step in rest]})
        self._answer(
            {
                "kv_bytes": running.kv_bytes(),
                "drafter_bytes": running.drafter_bytes(),
                "allocator_active_bytes": self._engine.backend.allocator_active_bytes(),
                # A checkout from before forwards could fall back has nothing to say.
                "fallbacks": dict(running.fallbacks()) if hasattr(running, "fallbacks") else {},
            }
        )

    def margin(self, ask: dict[str, Any]) -> None:
        """Say how near a tie the target's choice after some ids is."""
        from engine.measurement.launch import top2_margin

        self._answer({"margin": top2_margin(self._engine, tuple(ask["ids"]), self._settings)})

    def imported(self, _ask: dict[str, Any]) -> None:
        """Say where every module of the engine came from."""
        files = {
            str(getattr(module, "__file__", None))
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] in {"engine", "bridge"}
        }
        self._answer({"files": sorted(files)})

    def _plain(self, step: Any) -> dict[str, Any]:
        values = {name: getattr(step, name) for name in self._fields if hasattr(step, name)}
        values["tokens"] = [int(token) for token in step.tokens]
        values["stop"] = None if step.stop is None else str(step.stop)
        return values


def main(arguments: list[str]) -> int:
    """Answer until the parent closes standard input; whatever goes wrong is an answer."""
    checkout, descriptor = Path(arguments[0]).resolve(), int(arguments[1])
    sys.path.insert(0, str(checkout))

    def answer(value: dict[str, Any]) -> None:
        os.write(descriptor, json.dumps(value, separators=(",", ":")).encode() + b"\n")

    worker = Worker(checkout, answer)
    for line in sys.stdin.buffer:
        ask = json.loads(line)
        try:
            getattr(worker, ask["ask"])(ask)
        except Exception as error:  # noqa: BLE001  the parent says it, with the name of the commit
            answer({"error": f"{type(error).__name__}: {error}"[:2000]})
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
