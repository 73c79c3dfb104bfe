"""What `--help` and completion cost beside a bare interpreter: target at most 5 times."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.quick.figures import Figure
from benchmarks.quick.interleave import interleave, ratio

BARE = "python -c pass"
COMMANDS = {
    BARE: [sys.executable, "-c", "pass"],
    "kakeya-mac --help": [sys.executable, "-m", "bridge.cli.mac.main", "--help"],
    "kakeya-mac completion bash": [sys.executable, "-m", "bridge.cli.mac.main", "completion", "bash"],
    "kakeya-runner --help": [sys.executable, "-m", "bridge.cli.host.main", "--help"],
    "kakeya-engine --help": [sys.executable, "-m", "engine.cli", "--help"],
}


def measure(repeats: int = 15) -> list[Figure]:
    """Return median milliseconds, and ratios to the bare interpreter of the same interleaved run."""

    def runner(argv: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=60)

    timings = interleave({name: runner(argv) for name, argv in COMMANDS.items()}, repeats)
    figures = [Figure(name, round(timing.median_s * 1e3, 1), "ms") for name, timing in timings.items()]
    return figures + [
        Figure(f"{name} to {BARE}", round(ratio(timings, name, BARE), 2), "ratio", 5.0)
        for name in COMMANDS
        if name != BARE
    ]
