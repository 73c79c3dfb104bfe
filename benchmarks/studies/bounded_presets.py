"""The presets of bounded caches over a runner that serves, from a second clone; each result is kept and judged again.

A result's tree lies in docs/evidence/bounded-presets with the key that signed it in the report: what it claims, whoever
pins that key can find out by `kakeya-mac gate check`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.studies.kept import run_and_keep
from benchmarks.studies.report import ROOT
from benchmarks.studies.served import person, served, well
from benchmarks.studies.study import Row, Study

KEPT: Final = ROOT / "docs" / "evidence" / "bounded-presets"
PRESETS: Final = (
    "k3-bounded-kv",
    "k3-kv-quant-eval",
    "k3-step1-incremental",
    "k3-step2-fused-allmlx",
    "k3-step2-fused",
)
PROFILES: Final = ("smoke", "claim")


def cases() -> Sequence[str]:
    """Return every preset in the smoke profile, then in the one that carries claims."""
    return [f"{preset}, {profile}" for profile in PROFILES for preset in PRESETS]


def run(case: str, kept: Path = KEPT) -> list[Row]:
    """Serve, send one request, keep its result, and return what it came to.

    Raises:
        RuntimeError: a step of the set-up failed, or the request left no verdict.
    """
    preset, profile = case.split(", ")
    with tempfile.TemporaryDirectory(prefix="kakeya-bounded-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        route = place / "route.git"
        host, requester = (person(place / who) for who in ("host", "requester"))
        with served(host, route) as key:
            well(requester.do(f"kakeya-mac init --bus {route} --runner-key {key}"))
            found = run_and_keep(requester, f"{preset} --profile {profile}", kept / f"{preset}-{profile}")
    return [{"preset": preset, "profile": profile, "pin": key} | found]


STUDY = Study("bounded-presets", "What does each preset of bounded caches say over a served runner?", cases, run)
