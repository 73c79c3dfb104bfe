"""The presets of bounded caches over a runner that serves, from a second clone; each result is kept and judged again.

A result's tree lies in docs/evidence/bounded-presets with the key that signed it in the report: what it claims, whoever
pins that key can find out by `kakeya-mac gate check`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.report import ROOT
from benchmarks.studies.served import person, served, well
from benchmarks.studies.study import Row, Study
from bridge.records import RunRecord, Verdict

KEPT: Final = ROOT / "docs" / "evidence" / "bounded-presets"
PRESETS: Final = (
    "k3-bounded-kv",
    "k3-kv-quant-eval",
    "k3-step1-incremental",
    "k3-step2-fused-allmlx",
    "k3-step2-fused",
)
PROFILES: Final = ("smoke", "claim")
_MAX_BYTES: Final = 1 << 26


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
            code, document = requester.asked(f"kakeya-mac run {preset} --profile {profile} --wait --json")
            found = requester.do(f"kakeya-mac open {document['id']}")
        tree = requester.clone / found.stdout.strip()
        if found.returncode or not (tree / "verdict.json").is_file():
            raise RuntimeError(f"{case}: exit code {code}, no verdict: {document.get('outcome')} {found.stderr[-500:]}")
        folder = kept / f"{preset}-{profile}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tree, folder)
    return [{"preset": preset, "profile": profile, "exit": code, "pin": key} | came_to(folder)]


def came_to(tree: Path) -> dict[str, Any]:
    """Return what a result says: how it ended, the value and class of each claim, the findings that refuse one."""
    verdict, record = (
        kind.parse((tree / name).read_bytes(), max_bytes=_MAX_BYTES)
        for kind, name in ((Verdict, "verdict.json"), (RunRecord, "run.json"))
    )
    return {
        "id": verdict.id,
        "decision": verdict.decision,
        "claims": {
            claim.id: {"value": claim.value, "decision": claim.decision, "why": claim.why} for claim in verdict.claims
        },
        "refused_by": sorted({found.code for found in verdict.findings if found.severity == "reject"}),
        "wall_s": round(record.wall_s, 1),
    }


STUDY = Study("bounded-presets", "What does each preset of bounded caches say over a served runner?", cases, run)
