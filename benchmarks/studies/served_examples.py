"""Each preset of `examples/` over a runner that was set up and serves as the README prints it, from a second clone.

The host's clone builds the example and allows it; the requester's clone is told the runner's key, runs the preset and
verifies the result.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.studies.served import person, served, well
from benchmarks.studies.study import Row, Study

PRESETS: Final = {
    "line-fit": "line-fit",
    "checks": "checks",
    "two-sums": "two-sums",
    "c-sums": "takes-turns",
    "py-words": "takes-turns",
}
"""Each preset with the folder below `examples/` that offers it."""


def cases() -> Sequence[str]:
    """Return the presets."""
    return tuple(PRESETS)


def run(preset: str) -> list[Row]:
    """Serve one example and run its preset once.

    Raises:
        RuntimeError: a step of the set-up failed, or the run came to no end.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-examples-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        route = place / "route.git"
        host, requester = (person(place / who) for who in ("host", "requester"))
        with served(host, route, _built(host.clone / "examples" / PRESETS[preset])) as key:
            well(requester.do(f"kakeya-mac init --bus {route} --runner-key {key}"))
            code, document = requester.asked(f"kakeya-mac run {preset} --wait --json")
            verified = requester.do(f"kakeya-mac verify {document['id']}")
    return [
        {
            "preset": preset,
            "exit_code": code,
            "reason": document["outcome"]["reason"],
            "claims": [f"{one['decision']}: {one['wording']}" for one in document["claims"]],
            "verify": verified.returncode,
            "verified": (verified.stdout.splitlines() or [""])[0],
        }
    ]


def _built(folder: Path) -> Path:
    """Build what an example needs before it is offered, and return its folder."""
    if (folder / "Makefile").exists():
        subprocess.run(["make", "-s"], cwd=folder, check=True)
    if folder.name == "checks":  # its workload.toml names this environment: a Python with pytest
        (folder / ".venv").symlink_to(sys.prefix)
    return folder


STUDY = Study("served-examples", "Does every example run over a runner that is really served?", cases, run)
