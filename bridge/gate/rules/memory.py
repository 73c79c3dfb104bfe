"""Rules on the bytes that caches hold."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from bridge.gate.facts.model_sizes import kept_rows, latent_bytes, layout_bytes, most_bytes, native_bytes, shape_of
from bridge.gate.facts.restoration import misnamed
from bridge.gate.facts.samples import Arm, Sample, arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import BOUNDED_KV, COMMIT_COMPARISON, KV_QUANTISATION, SAMPLED, UNSEEN
from bridge.gate.rule import report_rule
from bridge.records.run import CacheShape

_DOUBLED: Final = (0.45, 2.2)
"""How far the bytes of two samples of as many tokens may lie apart: a buffer's doubling, and a tenth."""


@report_rule(
    "G4-MEMORY", "memory", kinds=SAMPLED, remedy="Read bytes from the real buffers after at least one decode step."
)
def bound_sample_bytes(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Measured bytes are plausible: more than nothing, the peak no less than the rest, equal work in equal bytes.

    Baseline and control run the same code on the same prompts; their caches hold the same bytes.
    """
    arms = arms_of(report, evidence)
    seen: dict[tuple[object, ...], int] = {}
    for arm in arms.all:
        yield from _outlying_bytes(arm)
        for sample in arm.samples:
            memory = sample["memory"]
            if arm.name in UNSEEN:
                if any(memory.values()):
                    yield Violation("bytes of an arm that is seen from outside only", arm.pointer(sample))
                continue
            if memory["kv_bytes"] < 1:
                yield Violation("kv_bytes is 0 after decoding", arm.pointer(sample))
            if memory["kv_bytes_peak"] is not None and memory["kv_bytes_peak"] < memory["kv_bytes"]:
                yield Violation("kv_bytes_peak is below kv_bytes", arm.pointer(sample))
            active = memory["allocator_active_bytes"]
            if active is not None and active < memory["kv_bytes"] + (memory["drafter_bytes"] or 0):
                yield Violation("the allocator holds less than the buffers measured", arm.pointer(sample))
            yield from _drafter_bytes(arm, sample)
            fields = cast("Mapping[str, int | None]", memory)
            for name in ("kv_bytes", "kv_bytes_peak", "drafter_bytes"):
                count = fields[name]
                if count is None:
                    continue
                # Baseline and control are one code; every candidate is a cache of its own.
                who = arm.name if arm.role == "candidate" else arm.code_path
                key = (name, who, sample["prompt_tokens"], sample["output_tokens"], _last_block(sample))
                if seen.setdefault(key, count) != count:
                    yield Violation(
                        f"{name} is {count}, the same code held {seen[key]} for as many tokens",
                        arm.pointer(sample),
                    )


def _outlying_bytes(arm: Arm) -> Iterator[Violation]:
    """Yield samples whose bytes are far from what the arm holds per token.

    Buffers grow by doubling, so a prompt that is one token longer may hold twice the bytes.
    """
    for name in ("kv_bytes", "kv_bytes_peak", "drafter_bytes", "allocator_active_bytes"):
        read = [(cast("Mapping[str, int | None]", s["memory"])[name], s) for s in arm.samples]
        held = [(count, s) for count, s in read if count]
        if len(held) < 4:
            continue
        middle = statistics.median(count for count, _ in held)
        usual = statistics.median(s["prompt_tokens"] + s["output_tokens"] for _, s in held)
        for count, sample in held:
            rows = sample["prompt_tokens"] + sample["output_tokens"]
            if not _DOUBLED[0] * min(1.0, rows / usual) <= count / middle <= _DOUBLED[1] * max(1.0, rows / usual):
                yield Violation(f"{name} is {count}, the arm's median {middle:.0f}", arm.pointer(sample))


def _last_block(sample: Sample) -> object:
    """Return what else decides a buffer's length: the rows of the last block."""
    drafted, accepted = sample["drafted_per_step"], sample["accepted_per_step"]
    return None if drafted is None or accepted is None else tuple(drafted[-2:] + accepted[-2:])


def _drafter_bytes(arm: Arm, sample: Sample) -> Iterator[Violation]:
    drafts = sample["accepted_per_step"] is not None
    if not drafts and sample["memory"]["drafter_bytes"] is not None:
        yield Violation("drafter_bytes in an arm that does not draft", arm.pointer(sample))


@report_rule(
    "G7-PROCESS",
    "memory",
    severity="violation",
    kinds=SAMPLED,
    remedy="Take bytes from a study with a process an arm: the preset k3-bounded-kv.",
)
def require_process_per_arm(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Bytes are claimed from a study in which every arm has a process of its own.

    Arms of one process share an allocator: what one of them frees the other one gets, and the bytes of either inform.
    """
    arms = arms_of(report, evidence).all
    if len(arms) > 1:
        yield Violation(f"{len(arms)} arms share the processes of this report", "/arms")


@report_rule(
    "G7-NATIVE",
    "memory",
    kinds=(*SAMPLED, BOUNDED_KV),
    remedy="Sum the real buffers of the library's own cache of the model in the host's folder; name arms by layout.",
)
def bound_cache_bytes(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A cache holds what its model's rows take: native within its library's growth, a layout what its name says.

    A native cache that is inflated in buffers and allocator alike makes any other look small. The runner reads from the
    model's folder how many values each layer keeps of a position, so the bytes of a context are arithmetic. A native
    cache that is called quantised finds every needle, and holds more than codes of its bits.
    """
    if evidence.record is None:
        return
    studied = report.kind in {BOUNDED_KV, KV_QUANTISATION}
    shape = shape_of(report, evidence)
    if shape is None or shape.caches is None:
        if studied:
            # A record from before the runner read these sizes has nothing to compare with.
            yield Violation(
                "the runner could not read how many values a position takes in the caches of this model",
                "/config/target",
                severity="violation" if evidence.authority == "host" else "note",
            )
        return
    if report.kind == BOUNDED_KV:
        yield from _study_bytes(report, shape.caches)
    elif report.kind != COMMIT_COMPARISON:  # its baseline is the engine's own cache
        yield from _sample_caches(report, evidence, shape.caches)


def _study_bytes(report: Report, caches: tuple[CacheShape, ...]) -> Iterator[Violation]:
    restores = any("+ftheta" in point["arm"] for point in report.body["rows"]["points"])
    if (wrong := misnamed(report, restores=restores)) is not None:
        yield Violation(wrong, "/config/restoration")
    longest = max((point["context_tokens"] for point in report.body["rows"]["points"]), default=0)
    for arm in sorted({point["arm"] for point in report.body["rows"]["points"]}):
        kept_in_memory = kept_rows(arm)
        if kept_in_memory is not None and kept_in_memory >= longest:
            said = f"{arm} keeps {kept_in_memory} rows, the longest context has {longest} tokens: nothing left it"
            yield Violation(said, "/rows/points")
    for index, point in enumerate(report.body["rows"]["points"]):
        positions = point["context_tokens"] + point["decode_steps"]
        where = f"/rows/points/{index}"
        yield from _cache_bytes(report, caches, point, (point["arm"], point["role"] != "candidate", positions, where))
        if point["role"] != "candidate" and (point["drafter_bytes"] or point["latent_bytes"]):
            beside = f"{point['drafter_bytes']} bytes of a drafter and {point['latent_bytes']} of latents"
            yield Violation(f"the native cache is held beside {beside}: it has neither", where)
        latents, kept = latent_bytes(point["arm"], report, positions), point["latent_bytes"]
        if latents is not None and not latents[0] <= kept <= latents[1]:
            yield Violation(
                f"{point['arm']} restores {positions} positions from {kept} bytes, its rank takes {latents[0]:.0f} to "
                f"{latents[1]:.0f}",
                where,
            )


def _sample_caches(report: Report, evidence: Evidence, caches: tuple[CacheShape, ...]) -> Iterator[Violation]:
    rows = report.body["rows"]["errors"] if report.kind == KV_QUANTISATION else []
    stored: dict[str, float] = {}
    for row in rows:
        stored[row["arm"]] = max(row["bits"], stored.get(row["arm"], 0.0))
    for arm in arms_of(report, evidence).all:
        native = arm.role != "candidate"
        if not native and report.kind != KV_QUANTISATION:
            continue  # nothing is claimed of the bytes of these arms
        for sample in arm.samples:
            if sample["output_tokens"] < 2:
                continue  # a cache after the prefill alone still holds what the prefill needed
            positions = sample["prompt_tokens"] + sample["output_tokens"] - 1
            yield from _cache_bytes(
                report, caches, sample["memory"], (arm.name, native, positions, arm.pointer(sample))
            )
            bits = stored.get(arm.name)
            most = None if native or bits is None else most_bytes(bits, caches, positions)
            if most is not None and sample["memory"]["kv_bytes"] > most:
                held = sample["memory"]["kv_bytes"]
                yield Violation(
                    f"{arm.name} holds {held} bytes of {positions} positions, at {bits:g} bits a value they take at "
                    f"most {most:.0f}",
                    arm.pointer(sample),
                )


def _cache_bytes(
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
    bounds = layout_bytes(arm, caches, report, positions)
    if bounds is None:
        yield Violation(
            f"arm {arm!r} names no cache layout: nobody knows what it must hold", where, severity="violation"
        )
    elif kept < bounds[0]:
        yield Violation(f"{arm} holds {kept} bytes of {positions} positions, it keeps at least {bounds[0]:.0f}", where)
    elif kept > bounds[1]:
        yield Violation(f"{arm} holds {kept} bytes of {positions} positions, it keeps at most {bounds[1]:.0f}", where)
