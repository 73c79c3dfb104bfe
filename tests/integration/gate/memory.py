"""The stand-in's memory study: two ways of keeping a context, a process each, counted by an allocator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from tests.integration.gate.workload import TOKEN_BYTES, digest_of, envelope, model, native, now

CONTEXTS, REPEATS, WINDOW, STEPS = (256, 512, 1024, 2048), 2, 68, 4
BOUNDED = "sink4+window64"
ROLES = {"native": "baseline", BOUNDED: "candidate"}


class Allocator:
    """Hands out real buffers and counts what it has handed out."""

    def __init__(self) -> None:
        self.active_bytes = 0

    def take(self, count: int) -> bytearray:
        self.active_bytes += count
        return bytearray(count)

    def give_back(self, buffer: bytearray) -> None:
        self.active_bytes -= len(buffer)
        buffer.clear()


def study(arm: str) -> list[dict[str, Any]]:
    """Return the points of one arm, measured in this process."""
    points = []
    for context in CONTEXTS:
        for repeat in range(REPEATS):
            allocator = Allocator()
            idle = allocator.active_bytes
            cache = [allocator.take(TOKEN_BYTES) for _ in range(context)]
            peak = sum(map(len, cache))
            if arm == BOUNDED:
                while len(cache) > WINDOW:
                    allocator.give_back(cache.pop(0))
            for _ in range(STEPS):
                if arm == BOUNDED:
                    allocator.give_back(cache.pop(0))
                cache.append(allocator.take(TOKEN_BYTES))
            kv_bytes = sum(map(len, cache))
            points.append(
                {
                    "arm": arm, "role": ROLES[arm], "process": os.getpid(), "repeat": repeat,
                    "context_tokens": context, "decode_steps": STEPS, "kv_bytes": kv_bytes,
                    "kv_bytes_peak": max(peak, kv_bytes), "host_bytes": 0, "drafter_bytes": 0, "latent_bytes": 0,
                    "allocator_idle_bytes": idle, "allocator_active_bytes": allocator.active_bytes,
                    "token_digest": digest_of([context, 7, 8]),
                }
            )  # fmt: skip
    return points


def memory_report() -> dict[str, Any]:
    """Return the report of both arms."""
    started, began = now(), time.perf_counter()
    points = []
    for arm in ROLES:
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.gate.memory", arm], capture_output=True, text=True, check=True
        )
        points += json.loads(done.stdout)
    target = model(os.environ["KAKEYA_TARGET"]) | {"parameters": 1000, "vocab_size": 2048, "dtype": "float32"}
    return envelope("bounded_kv", native()[0]) | {
        "config": {"target": target},
        "rows": {"points": points},
        "started_at": started,
        "ended_at": now(),
        "wall_s": time.perf_counter() - began,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(study(sys.argv[1])))
