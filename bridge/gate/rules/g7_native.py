"""A cache holds what its model's rows take: the native one within its library's growth, a layout no less than it keeps.

A native cache that is inflated in buffers and allocator alike makes any other look small. The runner reads from the
model's folder how many values each layer keeps of a position, so the bytes of a context are arithmetic. A native cache
that is called quantised finds every needle, and holds more than codes of its bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of
from bridge.gate.shapes import least_bytes, most_bytes, native_bytes, shape_of
from bridge.records import CacheShape


@report_rule(
    "G7-NATIVE",
    kinds=(*kinds.SAMPLED, kinds.BOUNDED_KV),
    remedy="Sum the real buffers of the library's own cache of the model in the host's folder; name arms by layout.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    if evidence.record is None:
        return
    studied = report.kind in {kinds.BOUNDED_KV, kinds.KV_QUANTISATION}
    shape = shape_of(report, evidence)
    if shape is None or shape.caches is None:
        if studied:
            # A record from before the runner read these sizes has nothing to compare with.
            yield Violation(
                "the runner could not read how many values a position takes in the caches of this model",
                "/config/target",
                severity="not_citable" if evidence.authority == "host" else "note",
            )
        return
    if report.kind == kinds.BOUNDED_KV:
        yield from _points(report, shape.caches)
    elif report.kind != kinds.COMMIT_COMPARISON:  # its baseline is the engine's own cache
        yield from _samples(report, evidence, shape.caches)


def _points(report: Report, caches: tuple[CacheShape, ...]) -> Iterator[Violation]:
    for index, point in enumerate(report.body["rows"]["points"]):
        positions = point["context_tokens"] + point["decode_steps"]
        where = f"/rows/points/{index}"
        yield from _held(report, caches, point, (point["arm"], point["role"] != "candidate", positions, where))


def _samples(report: Report, evidence: Evidence, caches: tuple[CacheShape, ...]) -> Iterator[Violation]:
    rows = report.body["rows"]["errors"] if report.kind == kinds.KV_QUANTISATION else []
    stored = {arm: max(row["bits"] for row in rows if row["arm"] == arm) for arm in {row["arm"] for row in rows}}
    for arm in arms_of(report, evidence).all:
        native = arm.role != "candidate"
        if not native and report.kind != kinds.KV_QUANTISATION:
            continue  # nothing is claimed of the bytes of these arms
        for sample in arm.samples:
            if sample["output_tokens"] < 2:
                continue  # a cache after the prefill alone still holds what the prefill needed
            positions = sample["prompt_tokens"] + sample["output_tokens"] - 1
            yield from _held(report, caches, sample["memory"], (arm.name, native, positions, arm.pointer(sample)))
            bits = stored.get(arm.name)
            most = None if native or bits is None else most_bytes(bits, caches, positions)
            if most is not None and sample["memory"]["kv_bytes"] > most:
                held = sample["memory"]["kv_bytes"]
                yield Violation(
                    f"{arm.name} holds {held} bytes of {positions} positions, at {bits:g} bits a value they take at "
                    f"most {most:.0f}",
                    arm.pointer(sample),
                )


def _held(
    report: Report, caches: tuple[CacheShape, ...], held: Mapping[str, Any], what: tuple[str, bool, int, str]
) -> Iterator[Violation]:
    """Yield bytes that the rows of so many positions do not take."""
    arm, native, positions, where = what
    kept = held["kv_bytes"]
    if native:
        low, high = native_bytes(caches, report, positions)
        if not low <= kept <= high:
            yield Violation(
                f"the native cache holds {kept} bytes of {positions} positions, its rows take {low:.0f} to {high:.0f}",
                where,
            )
        return
    least = least_bytes(arm, caches, report, positions)
    if least is None:
        yield Violation(
            f"arm {arm!r} names no cache layout: nobody knows what it must hold", where, severity="not_citable"
        )
    elif kept < least:
        yield Violation(f"{arm} holds {kept} bytes of {positions} positions, it keeps at least {least:.0f}", where)
