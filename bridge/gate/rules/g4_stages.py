"""A sample's stages add up to its total, and the totals fit into the report's wall time.

Decode time is cut out of the whole by two marks; what is taken from one stage must appear in another.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule("G4-STAGES", kinds=kinds.SAMPLED, remedy="Take all stages of a sample from the same clock marks.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    tolerance = float(evidence.profile["stages_tolerance"])
    total_s = 0.0
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            stages = sample["stages"]
            total_s += stages["total_s"]
            parts_s = stages["prefill_s"] + stages["decode_s"]
            if abs(stages["total_s"] - parts_s) > 1e-5 + tolerance * parts_s:
                yield Violation(
                    f"prefill and decode are {parts_s:.6f} s, total_s is {stages['total_s']:.6f}", arm.pointer(sample)
                )
            inner = [stages[name] for name in ("draft_s", "verify_s", "other_s")]
            if all(value is not None for value in inner):
                if abs(sum(inner) - stages["decode_s"]) > 1e-5 + tolerance * stages["decode_s"]:
                    yield Violation(
                        f"draft, verify and other are {sum(inner):.6f} s, decode_s is {stages['decode_s']:.6f}",
                        arm.pointer(sample),
                    )
            elif any(value is not None for value in inner):
                yield Violation("some of draft_s, verify_s and other_s are absent", arm.pointer(sample))
            if not (stages["prefill_s"] > 0 and (stages["decode_s"] > 0 or sample["output_tokens"] == 1)):
                yield Violation("a stage took no time", arm.pointer(sample))
    if total_s > report.body["wall_s"] * 1.001 + 0.01:
        yield Violation(f"samples took {total_s:.3f} s, the report {report.body['wall_s']:.3f} s", "/wall_s")
