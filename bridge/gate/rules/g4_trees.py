"""Each side of a comparison of two commits ran that commit's code, and the commits are the ones that were asked for.

Two checkouts on one module path are one checkout: whichever comes first runs twice, and the difference is none.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G4-TREES",
    kinds=(kinds.COMMIT_COMPARISON,),
    remedy="Let the harness start each side with its own checkout first on the module path.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    config, trees = report.body["config"], report.body["rows"]["trees"]
    for side in ("base", "head"):
        tree, wanted = trees[side], f"{side}/engine/__init__.py"
        if tree["imported"] != wanted:
            yield Violation(
                f"{side} imported {tree['imported']!r}, expected {wanted!r}", f"/rows/trees/{side}/imported"
            )
        if tree["commit"] != config[f"{side}_commit"]:
            yield Violation(
                f"{side} ran {tree['commit'][:12]}, the settings say {config[f'{side}_commit'][:12]}",
                f"/rows/trees/{side}/commit",
            )
    spec, record = evidence.spec, evidence.record
    if spec is not None and spec.base != config["base_commit"]:
        yield Violation(f"base is {config['base_commit']}, the job spec says {spec.base}", "/config/base_commit")
    if record is not None and record.code is not None and record.code.identity != config["head_commit"]:
        yield Violation(
            f"head is {config['head_commit']}, the runner checked out {record.code.identity}", "/config/head_commit"
        )
    margin = None if spec is None else spec.params.get("margin")
    if margin is not None and margin != config["slower_margin"]:
        yield Violation(f"margin {config['slower_margin']}, asked for {margin}", "/config/slower_margin")
