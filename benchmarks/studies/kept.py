"""A result that a requester received: kept with its tree, so that it can be judged again, and what it says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.served import Person
from bridge.records import RunRecord, Verdict

_MAX_BYTES: Final = 1 << 26


def run_and_keep(requester: Person, request: str, folder: Path) -> dict[str, Any]:
    """Send a request, keep the tree of its result in place of what a folder held, and return what it came to.

    Args:
        requester: who sends it.
        request: preset and options, as after `kakeya-mac run`.
        folder: where its result is kept.

    Raises:
        RuntimeError: it left no verdict.
    """
    code, document = requester.asked(f"kakeya-mac run {request} --wait --json")
    found = requester.do(f"kakeya-mac open {document['id']}")
    tree = requester.clone / found.stdout.strip()
    if found.returncode or not (tree / "verdict.json").is_file():
        why = f"{document.get('outcome')} {found.stderr[-500:]}"
        raise RuntimeError(f"{request}: exit code {code}, no verdict: {why}")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(tree, folder)
    return {"exit": code} | result_row(folder)


def result_row(tree: Path) -> dict[str, Any]:
    """Return what a result says: its decision, each claim with what it was granted, the findings that refuse one."""
    verdict, record = (
        kind.parse((tree / name).read_bytes(), max_bytes=_MAX_BYTES)
        for kind, name in ((Verdict, "verdict.json"), (RunRecord, "run.json"))
    )
    return {
        "id": verdict.id,
        "decision": verdict.decision,
        "claims": {
            claim.id: {"value": claim.value, "decision": claim.decision, "wording": claim.wording, "why": claim.why}
            for claim in verdict.claims
        },
        "refused_by": sorted({found.code for found in verdict.findings if found.severity == "reject"}),
        "wall_s": round(record.wall_s, 1),
    }
