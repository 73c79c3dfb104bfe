"""The five presets of a drafter elsewhere, each sent to a runner of its own from a clone of its own.

The crosshost preset's drafter is served on a unix socket, where `ssh -L` would end. What was judged is kept in
docs/evidence/remote-presets with the key that signed it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.studies.kept import run_and_keep
from benchmarks.studies.report import ROOT
from benchmarks.studies.served import Person, person
from benchmarks.studies.study import Row, Study
from engine.isolation.drafter_process import DrafterProcess

CROSSHOST: Final = "mlx-distributed-dflash-e2e-crosshost"
PRESETS: Final = (
    "mlx-distributed-spec-decode-demo",
    "mlx-distributed-dflash-e2e-inproc",
    "mlx-distributed-dflash-e2e-grpc",
    CROSSHOST,
    "mlx-distributed-spec-decode-bench",
)
PROFILES: Final = ("smoke", "claim")
PAIR: Final = "kakeya-tiny-gemma4"
KEPT: Final = ROOT / "docs" / "evidence" / "remote-presets"


def cases() -> Sequence[str]:
    """Return the presets, all in the short profile first."""
    return [f"{preset}, {profile}" for profile in PROFILES for preset in PRESETS]


@dataclass(frozen=True)
class Linked(Person):
    """Somebody whose own machine is told where another one's drafter is reached."""

    endpoint: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What their shell has, and the socket."""
        return super().environment | ({"KAKEYA_ENDPOINT": self.endpoint} if self.endpoint else {})


def run(case: str, kept: Path = KEPT) -> list[Row]:
    """Send one request, keep what was judged, and return what it came to.

    Raises:
        RuntimeError: it left no verdict.
    """
    preset, profile = case.split(", ")
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="kakeya-remote-preset-", ignore_cleanup_errors=True)
        place = Path(stack.enter_context(folder))
        endpoint = ""
        if preset == CROSSHOST:
            endpoint = f"unix:{place}/drafter.sock"
            stack.callback(DrafterProcess(["--target", PAIR, "--address", endpoint]).close)
            # A run may be another user than whoever sends it.
            place.chmod(0o755)
            (place / "drafter.sock").chmod(0o777)
        somebody = person(place)
        sender = Linked(somebody.clone, somebody.home, endpoint)
        began_s = time.monotonic()
        found = run_and_keep(sender, f"{preset} --profile {profile}", kept / f"{preset}-{profile}")
        took_s = time.monotonic() - began_s
        pin = _pin(sender.home)
    return [found | {"preset": preset, "profile": profile, "took_s": round(took_s, 1)} | pin]


def _pin(home: Path) -> dict[str, str]:
    """Return the runner's key as readers pin it."""
    (path,) = home.rglob("runner.keys.json")
    (record,) = json.loads(path.read_text("utf-8"))
    return {"pin": f"{record['name']}={record['public']}"}


STUDY = Study("remote-presets", "What do the presets of a drafter elsewhere come to, sent to a runner?", cases, run)
