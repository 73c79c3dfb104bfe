"""Run the measuring steps of the kit one after the other, each in a process of its own, within a time in all.

Every row is appended to a file as it comes, so that whoever has a machine for seven minutes has rows after one. A step
that breaks or outlasts its share of the time is a row that says so, and the next one begins.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.hardware_kit.measuring import STEPS, Row

BACKENDS = {"torch": "torch", "mlx": "mlx.core"}
LEAST_STEP_S = 10.0


def installed_backends() -> list[str]:
    """Return the backends of the engine that this Python has."""
    return [name for name, module in BACKENDS.items() if importlib.util.find_spec(module.partition(".")[0])]


def commands(backends: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Return step, backend and command of everything that is measured, in order."""
    module = "benchmarks.hardware_kit.measuring"
    return [
        (step, backend, [sys.executable, "-m", module, step, "--backend", backend])
        for step in STEPS
        for backend in backends
    ]


def measure(
    work: Sequence[tuple[str, str, Sequence[str]]],
    seconds: float,
    clean: Callable[[str], str] = str,
    least_s: float = LEAST_STEP_S,
) -> Iterator[Row]:
    """Yield rows as they come, each with its step, backend and the seconds since the beginning.

    Args:
        work: Step, backend and command of each process; what is left of the time is shared evenly by those to come.
        seconds: For all of them.
        least_s: Of one process; with less left it is left out.
        clean: Takes what is private out of a line that a broken step wrote.
    """
    began = time.monotonic()

    def stamped(step: str, backend: str, row: Row) -> Row:
        return {"step": step, "backend": backend, "at_s": round(time.monotonic() - began, 1)} | row

    for index, (step, backend, command) in enumerate(work):
        left_s = seconds - (time.monotonic() - began)
        if left_s < least_s:
            yield stamped(step, backend, {"left_out": step, "why": "no time was left"})
            continue
        share_s = max(least_s, 2.0 * left_s / (len(work) - index + 1))
        for row in _run(command, min(share_s, left_s), clean):
            yield stamped(step, backend, row)


def append(path: Path, rows: Iterator[Row]) -> list[Row]:
    """Append each row to a file as it comes; return all of them."""
    taken: list[Row] = []
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, sort_keys=True) + "\n")
            file.flush()
            taken.append(row)
    return taken


def _run(command: Sequence[str], seconds: float, clean: Callable[[str], str]) -> Iterator[Row]:
    """Yield the rows that a process prints, and how it ended where it did not end well."""
    deadline = time.monotonic() + seconds
    root = Path(__file__).resolve().parents[2]
    with (
        subprocess.Popen(
            command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as process,
        _killed_with_us(process),
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as ready:
            for stream in (process.stdout, process.stderr):
                os.set_blocking(stream.fileno(), False)
                ready.register(stream, selectors.EVENT_READ)
            text = {process.stdout: b"", process.stderr: b""}
            while ready.get_map() and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in ready.select(left_s):
                    stream: Any = key.fileobj
                    part = stream.read()
                    if not part:
                        ready.unregister(stream)
                        continue
                    text[stream] = (text[stream] + part)[-(1 << 20) :]
                    *lines, text[process.stdout] = text[process.stdout].split(b"\n")
                    yield from (_row(line, clean) for line in lines)
        if deadline <= time.monotonic():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            yield {"broken": f"stopped after its {seconds:.0f} s"}
        elif process.wait():
            last = text[process.stderr].decode("utf-8", "replace").strip().splitlines() or ["no word"]
            yield {"broken": clean(last[-1])[:300]}


@contextmanager
def _killed_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill what is left of a process when its reader leaves: in a session of its own it hears no interrupt of ours."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _row(line: bytes, clean: Callable[[str], str]) -> Row:
    """Return the row that a process printed; what a library of its printed instead is a row that says so."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    return row if isinstance(row, dict) else {"printed": clean(line.decode("utf-8", "replace"))[:300]}
