"""What `--help` and completion cost beside a bare interpreter: target at most 5 times."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.interleave import interleave, ratio

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "kakeya-mac --help": [sys.executable, "-m", "bridge.cli.mac", "--help"],
    "kakeya-runner --help": [sys.executable, "-m", "bridge.cli.runner", "--help"],
    "kakeya-engine --help": [sys.executable, "-m", "engine.cli", "--help"],
}


def measure(repeats: int = 15) -> dict[str, float]:
    """Return median milliseconds and ratios to the bare interpreter."""

    def runner(argv: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=60)

    timings = interleave({name: runner(argv) for name, argv in COMMANDS.items()}, repeats)
    result = {f"{name} ms": round(timing.median_s * 1e3, 1) for name, timing in timings.items()}
    for name in COMMANDS:
        result[f"{name} ratio"] = round(ratio(timings, name, "python -c pass"), 2)
    return result
