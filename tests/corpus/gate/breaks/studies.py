"""Breaks of the kinds that `tests.corpus.gate.studies` builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.corpus.gate.breaks.registry import BREAKS, PASSES, honest
from tests.corpus.gate.builders import Case, sha


def study(code: str, kind: str, change: Callable[[Any], None]) -> None:
    """Register a change to the report of an honest study."""

    def build() -> Case:
        case = honest(kind)
        change(case.report)
        return case.seal()

    BREAKS[code], PASSES[code] = build, lambda: honest(kind)


def slow(report: Any) -> None:
    for sample in report["arms"][2]["samples"]:
        sample["stages"]["decode_s"] *= 1.3


study("G4-PARITY", "drafter_parity", lambda report: report["rows"]["blocks"][0]["mlx_tokens"].pop())
study("G4-ERRORS", "kv_quantisation", lambda report: report["rows"]["errors"].pop())
study(
    "G4-TRAINING",
    "f_theta_training",
    lambda report: report["rows"]["held_out"][0].update(sequence_digest=report["rows"]["training_digests"][0]),
)
study("G3-CANARY", "f_theta_training", lambda report: report["rows"]["canaries"].update(noise_logit_change=0.0))
study("G7-DESIGN", "bounded_kv", lambda report: report["rows"]["points"][0].update(process=4115))
study("G7-BUFFERS", "bounded_kv", lambda report: report["rows"]["points"][0].update(kv_bytes=4_000_000))
study("G7-NATIVE", "bounded_kv", lambda report: report["rows"]["points"][0].update(kv_bytes=64))
study("G4-BOUNDED", "bounded_recall", lambda report: report["rows"]["answers"].pop())
study("G3-INJECTED", "bounded_recall", lambda report: report["rows"]["answers"][-1].update(rows_injected=0))
study("G7-BOUNDED", "bounded_recall", lambda report: report["rows"]["answers"][-1].update(kv_bytes=64))
study("G4-RPCS", "distributed_e2e", lambda report: report["rows"]["rpcs"].clear())
study("G6-RUNGS", "distributed_e2e", lambda report: report["rows"]["drafts"][-1].update(digest=sha("other ids")))
study("G5-CONFIRM", "commit_comparison", slow)
study("G2-PEER", "request_code", lambda report: report["rows"]["launches"][1]["prompts"][3].update(text="known"))
study(
    "G4-TREES",
    "commit_comparison",
    lambda report: report["rows"]["trees"]["head"].update(imported="base/engine/__init__.py"),
)
