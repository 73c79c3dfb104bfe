"""Decoding on the processor took processor time: in each command, a tenth of the decode time that is reported of it.

A program that sleeps and makes its tokens up can mark every sample on time; what it cannot do is use the processor. The
runner reads the time of a command, its children's included, from the kernel when it has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of
from bridge.records import RunRecord


@report_rule(
    "G3-PROCESSOR",
    severity="not_citable",
    kinds=(*kinds.SAMPLED, kinds.VERIFY_COST, kinds.FUSED_GRAPH_PROBE),
    remedy="Decode with the engine; on a machine so busy that it hardly ran, measure again when others are done.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    record = evidence.record
    if record is None or str(report.body["environment"]["device"]).split(":", maxsplit=1)[0] != "cpu":
        return
    least = float(evidence.profile["processor_share_min"])
    for place, decode_s in _reported_s(report, evidence, record).items():
        commands = record.commands if place is None else record.commands[place : place + 1]
        spent_s = sum(command.cpu_s for command in commands)
        if spent_s < least * decode_s:
            yield Violation(
                f"{decode_s:.1f} s of decoding are reported, the runner saw {spent_s:.2f} s of processor time, "
                f"expected at least {least * decode_s:.2f} s",
                "commands" if place is None else commands[0].name,
            )


def _reported_s(report: Report, evidence: Evidence, record: RunRecord) -> Counter[int | None]:
    """Return the reported seconds by the command they were marked in, None for what was not marked in any."""
    rows = report.body.get("rows") or {}
    if report.kind == kinds.VERIFY_COST:
        return Counter({None: sum(sum(row["seconds"]) for side in ("verify", "draft") for row in rows[side])})
    if report.kind == kinds.FUSED_GRAPH_PROBE:
        return Counter({None: sum(block["eval_s"] for block in rows["blocks"])})
    places = {mark.sample: _place(record, mark.t_s) for mark in record.sample_marks if mark.event == "end"}
    found: Counter[int | None] = Counter()
    for arm in arms_of(report, evidence).all:
        # What only answers ran beside the command, and its processor time is not the command's.
        for sample in arm.samples if arm.name not in kinds.UNSEEN else ():
            found[places.get(sample["id"])] += sample["stages"]["decode_s"]
    return found


def _place(record: RunRecord, t_s: float) -> int | None:
    """Return the last command that had begun at this moment; None where none had."""
    return max((place for place, command in enumerate(record.commands) if command.started_s <= t_s), default=None)
