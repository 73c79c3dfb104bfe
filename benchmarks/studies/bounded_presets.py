"""The presets of bounded caches over a runner that serves, from a second clone; each result is kept and judged again.

A result's tree lies in docs/evidence/bounded-presets with the key that signed it in the report: what it claims, whoever
pins that key can find out by `kakeya-mac gate check`. A claim on recall asks one arm beside the native cache: each arm
answers sixty prompts, and all of them again when they are computed again, which takes hours for every arm of a preset.
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
RECALLED: Final = frozenset({"k3-step1-incremental", "k3-step2-fused-allmlx", "k3-step2-fused"})
CLAIMED: Final = "sink4+window64+ftheta64"
"""The arm of the presets of recall that a claim is made of."""


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
            arms = f" -p arms={CLAIMED}" if preset in RECALLED and profile == "claim" else ""
            found = run_and_keep(requester, f"{preset} --profile {profile}{arms}", kept / f"{preset}-{profile}")
    return [{"preset": preset, "profile": profile, "pin": key} | found]


STUDY = Study("bounded-presets", "What does each preset of bounded caches say over a served runner?", cases, run)
