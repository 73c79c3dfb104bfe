"""Rules on the arms of a comparison: roles, code paths, settings, order, remote calls."""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bridge.gate.declared.row_views import StatedRpc
from bridge.gate.facts.launch_series import Series, series_of
from bridge.gate.facts.samples import Arm, Sample, arms_of, depth_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import (
    COMMIT_COMPARISON,
    DISTRIBUTED_BENCH,
    DISTRIBUTED_E2E,
    IN_PROCESS,
    INTERLEAVED,
    KV_QUANTISATION,
    ONE_EACH,
    REQUEST_CODE,
    ROLES,
    SAMPLED,
)
from bridge.gate.rule import report_rule

_NAMED_TRIP: Final = re.compile(r"rtt-([0-9]{1,6})ms")
_NAMED_SHARE: Final = 0.95  # of the round trip that an arm is named after: what a clock's ticks may take off it
_JITTER_S: Final = 0.01  # below it a busy machine may answer an empty call later than a draft on an open stream


@report_rule(
    "G3-SELF",
    "ratio",
    kinds=(*INTERLEAVED, KV_QUANTISATION),
    remedy="Compare the candidate's own code with the library's own decoding.",
)
def require_distinct_arms(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Candidate and baseline are two computations, baseline and control are one.

    A baseline compared with itself gave 2.58x; a report whose two arms were one computation passed the seed's gate at
    2.18x, because a flag said so. Here the code path and the counters say it.
    """
    arms = arms_of(report, evidence)
    baseline, control = arms.baseline, arms.control
    if baseline is not None and control is not None and baseline.code_path != control.code_path:
        yield Violation(
            f"the control runs {control.code_path}, the baseline {baseline.code_path}", f"/arms/{control.index}"
        )
    if baseline is None or report.kind in {COMMIT_COMPARISON, REQUEST_CODE}:
        return
    # One that asked elsewhere and was never answered in time is no baseline: the calls say what it did.
    asked = {row["arm"] for row in report.body["rows"]["rpcs"]} if report.kind == DISTRIBUTED_BENCH else set()
    for arm in arms.candidates:
        if arm.code_path == baseline.code_path:
            yield Violation(f"both arms run {arm.code_path}", f"/arms/{arm.index}/code_path")
        # The arms of a study of caches differ by what they store, and none of them drafts.
        drafted = any(sample["counters"]["drafted_tokens"] for sample in arm.measured)
        if arm.measured and not drafted and report.kind != KV_QUANTISATION and arm.name not in asked:
            yield Violation(
                f"no sample of {arm.name!r} drafted a token: both arms are the same computation", f"/arms/{arm.index}"
            )


@report_rule(
    "G4-ARMS", "ratio", kinds=SAMPLED, remedy="Give every arm its own name and role; use the engine's harness."
)
def require_arm_roles(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A comparison has one baseline, at most one control, one candidate unless its kind has several, and nothing else.

    Two baselines are a choice of which one to lose to.
    """
    arms = arms_of(report, evidence)
    names = Counter(arm.name for arm in arms.all)
    for name, count in names.items():
        if count > 1:
            yield Violation(f"arm {name!r} occurs {count} times", "/arms")
    for role, count in Counter(arm.role for arm in arms.all).items():
        if count > 1 and (role != "candidate" or report.kind in ONE_EACH):
            yield Violation(f"{count} arms have the role {role!r}", "/arms")
    if arms.baseline is None and report.kind in (*ONE_EACH, DISTRIBUTED_BENCH, DISTRIBUTED_E2E):
        yield Violation("there is no baseline", "/arms")
    order = [("baseline", "control", "candidate").index(arm.role) for arm in arms.all]
    if order != sorted(order):
        yield Violation(f"arms are listed as {[arm.role for arm in arms.all]}, expected the baseline first", "/arms")
    for arm in arms.all:
        expected = ROLES.get(arm.name)
        if expected is not None and arm.role != expected:
            yield Violation(f"arm {arm.name!r} has role {arm.role!r}, expected {expected!r}", f"/arms/{arm.index}/role")
        if not arm.measured:
            yield Violation(f"arm {arm.name!r} has no measured sample", f"/arms/{arm.index}/samples")


@report_rule("G4-CONFIG", "ratio", kinds=SAMPLED, remedy="Let the harness describe the settings it ran with.")
def compare_settings(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The settings agree with each other and with what was measured.

    A report's settings are what a reader would repeat.
    """
    config, arms = report.body["config"], arms_of(report, evidence)
    if config["dtype"] != config["target"]["dtype"]:
        yield Violation(f"dtype {config['dtype']!r}, the target's is {config['target']['dtype']!r}", "/config/dtype")
    drafts = any(sample["accepted_per_step"] is not None for arm in arms.all for sample in arm.samples)
    for name in ("drafter", "block_size", "depth"):
        if (config.get(name) is not None) != drafts:
            said = "an arm drafts" if drafts else "no arm drafts"
            yield Violation(f"{said}, {name} is {config.get(name)}", f"/config/{name}")
    depth, block_size = depth_of(config), config.get("block_size")
    if depth and block_size is not None:
        longest = depth.get("tokens") if depth["policy"] == "fixed" else depth.get("longest")
        if type(longest) is not int:
            yield Violation(f"the depth {depth} has no length", "/config/depth")
        elif block_size != longest + 1:
            yield Violation(f"block_size {block_size} with a depth of {longest}", "/config/block_size")
        drafter = config.get("drafter")
        trained = None if drafter is None else drafter["block_size"]
        if trained is not None and block_size > trained:
            yield Violation(f"block_size {block_size}, the drafter's is {trained}", "/config/block_size")
    if (config["stop"] == "natural") != bool(config["stopping_ids"]):
        yield Violation(f"stop {config['stop']!r} with stopping_ids {config['stopping_ids']}", "/config/stopping_ids")
    path = next((arm.code_path for arm in arms.reference), "")
    home = {"mlx": "mlx_lm.", "torch": "transformers."}.get(report.body["environment"]["backend"])
    if home is None:
        backend = report.body["environment"]["backend"]
        yield Violation(f"backend {backend!r} decodes nothing, expected mlx or torch", "/environment/backend")
    elif path and not path.startswith(home) and report.kind != COMMIT_COMPARISON:  # compares the engine's own
        yield Violation(f"the baseline is {path!r}, expected the library's own decoding ({home}…)", "/arms")


@report_rule("G4-ORDER", "inputs", kinds=INTERLEAVED, remedy="Use the engine's schedule, seeded by KAKEYA_NONCE.")
def redraw_arm_order(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Samples ran in the order their numbers say, and the order of prompts and arms is the one drawn from the nonce.

    A fixed order with a first-position effect gives 52 to 64 % false differences; an order that somebody chose can be
    chosen until it helps. Every order of the arms occurs equally often; anyone can draw it again.
    """
    arms = arms_of(report, evidence).all
    series = series_of(report, evidence)
    if series is not None:  # which arm goes next is drawn by who hands out the turns
        yield from _drawn_blocks(series, arms, evidence)
        return
    placed: dict[int, list[tuple[int, str, Sample]]] = {}
    for arm in arms:
        for sample in arm.samples:
            placed.setdefault(sample["launch"], []).append((sample["order_index"], arm.name, sample))
    launches = sorted(placed)
    if launches != list(range(len(launches))):
        yield Violation(f"launches {launches}, expected 0, 1, … without gaps")
    for launch in launches:
        rows = sorted(placed[launch], key=lambda row: row[0])
        if [index for index, *_ in rows] != list(range(len(rows))):
            yield Violation(f"launch {launch}: order_index is not 0, 1, … {len(rows) - 1}", "/arms")
            continue
        warm = [row for row in rows if row[2]["is_warmup"]]
        if any(row[2]["is_warmup"] for row in rows[len(warm) :]):
            yield Violation(f"launch {launch}: a warm-up came after a measured sample", "/arms")
            continue
        seed = seed_of(launch, report, evidence)
        yield from _balanced(launch, [(name, s["prompt_id"]) for _, name, s in rows[len(warm) :]], arms, seed)
        met = list(dict.fromkeys(s["prompt_id"] for _, _, s in rows[len(warm) :]))
        if (
            seed is not None
            and evidence.record is not None
            and evidence.record.nonce is not None
            and met != drawn_names(met, seed, launch)
        ):
            yield Violation(f"launch {launch}: prompts were not met in the order that the nonce draws", "/arms")


def _drawn_blocks(series: Series, arms: tuple[Arm, ...], evidence: Evidence) -> Iterator[Violation]:
    """Yield prompts that are not in the block, or not in the order within it, that the nonces draw.

    Blocks lie one behind the other in the drawn order of the set, so those that time left no launch for are not missed.
    """
    nonce = None if evidence.record is None else evidence.record.nonce
    if nonce is None:
        return  # G2-DRAWN says so
    every = drawn_names({sample["prompt_id"] for arm in arms for sample in arm.measured}, nonce, "blocks")
    met = _met_by_block(series, arms)
    ended = {launch.block for launch in series.counted if launch.cut is None}
    if len({len(met[block]) for block in ended}) > 1 or sum(map(len, met.values())) != len(every):
        yield Violation(f"{len(every)} prompts are no {len(met)} blocks of equal length", "/arms")
        return
    blocks, place = {}, 0
    for block in sorted(met):
        blocks[block] = every[place : place + len(met[block])]
        place += len(met[block])
    for launch in series.counted:
        wanted = drawn_names(blocks[launch.block], launch.nonce, launch.number)
        for arm in arms:
            got = [sample["prompt_id"] for sample in arm.measured if sample["launch"] == launch.number - 1]
            if launch.block not in ended:  # which prompts the cut left out is not known: those there are in order
                wanted_here = [name for name in wanted if name in set(got)]
            else:
                wanted_here = wanted if launch.cut is None else wanted[: len(got)]
            if got != wanted_here:
                yield Violation(
                    f"launch {launch.number}: arm {arm.name!r} did not meet the prompts of block {launch.block} in the "
                    "order that the nonces draw",
                    f"/arms/{arm.index}",
                )
                return


def _met_by_block(series: Series, arms: tuple[Arm, ...]) -> dict[int, set[str]]:
    """Return by block the prompts that any launch of it met; a block that only a cut launch met may lack some."""
    met: dict[int, set[str]] = {launch.block: set() for launch in series.counted}
    block_of = {launch.number - 1: launch.block for launch in series.counted}
    for arm in arms:
        for sample in arm.measured:
            if sample["launch"] in block_of:
                met[block_of[sample["launch"]]].add(sample["prompt_id"])
    return met


def seed_of(launch: int, report: Report, evidence: Evidence) -> str | None:
    """Return what the order within a launch is drawn from: its peer's nonce, the run's; None where nobody saw it."""
    record = evidence.record
    if record is None:
        return None
    if record.nonce is None:  # from before there was one
        return str(report.body["run"]["request_digest"])
    return record.peers[launch].nonce if launch < len(record.peers) else record.nonce


def drawn_names(names: Iterable[str], *seed: object) -> list[str]:
    """Return names in the order of sha256 over the seed and each of them."""

    def rank(name: str) -> bytes:
        return hashlib.sha256("/".join((*(str(part) for part in seed), name)).encode()).digest()

    return sorted(names, key=rank)


def _balanced(
    launch: int, rows: Sequence[tuple[str, str]], arms: tuple[Arm, ...], seed: str | None
) -> Iterator[Violation]:
    size = len(arms)
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    for block in blocks:
        if len({prompt for _, prompt in block}) != 1 or len({name for name, _ in block}) != size:
            yield Violation(f"launch {launch}: {block[0][1]!r} did not meet every arm in turn", "/arms")
            return
    orders = balancing_orders([arm.name for arm in arms])
    if len(blocks) % len(orders):
        yield Violation(f"launch {launch}: {len(blocks)} prompts cannot balance {len(orders)} orders", "/arms")
        return
    got = [tuple(name for name, _ in block) for block in blocks]
    wanted = got if seed is None else shuffled(orders * (len(blocks) // len(orders)), seed, launch, "orders")
    if got != wanted:
        first = next(index for index, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b)
        yield Violation(
            f"launch {launch}: prompt {first} met {' '.join(got[first])}; the nonce draws {' '.join(wanted[first])}",
            "/arms",
        )


def balancing_orders(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the orders in which arms are in each place, and behind each other arm, equally often.

    Williams squares (1949): up to three arms all permutations, then one or two orders an arm.
    """
    size = len(names)
    steps = [(place + 1) // 2 if place % 2 else (size - place // 2) % size for place in range(size)]
    rows = {tuple((step + shift) % size for step in steps) for shift in range(size)}
    rows |= {row[::-1] for row in rows} if size % 2 else set()
    return [tuple(names[index] for index in row) for row in sorted(rows)]


def shuffled(items: Sequence[tuple[str, ...]], *seed: object) -> list[tuple[str, ...]]:
    """Return the items in the order of sha256 over the seed and their index."""

    def rank(index: int) -> bytes:
        return hashlib.sha256("/".join(str(part) for part in (*seed, index)).encode()).digest()

    return [items[index] for index in sorted(range(len(items)), key=rank)]


@report_rule(
    "G4-RPCS", "times", kinds=(DISTRIBUTED_E2E, DISTRIBUTED_BENCH), remedy="Count every call where it is made, per arm."
)
def require_distinct_calls(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Calls are listed once per arm and method, of arms that exist: one for each draft, none longer than the run.

    A distributed arm without calls decoded locally, and one with fewer answers than drafts did so at times. What the
    server computed for a draft is a part of what it took to come. Every answer moved bytes, none is quicker than the
    link, and a link that an arm is named after has that round trip. Over a link that is longer than a sample takes no
    draft may come at all, where none is waited for.
    """
    rows, arms = report.body["rows"]["rpcs"], arms_of(report, evidence)
    candidates = {arm.name for arm in arms.all if arm.role == "candidate"}
    for key, count in Counter((row["arm"], row["method"]) for row in rows).items():
        if count > 1:
            yield Violation(f"{key} occurs {count} times", "/rows/rpcs")
    called = {row["arm"] for row in rows}
    candidates -= {IN_PROCESS}
    for name in sorted(called - candidates):
        yield Violation(f"calls of {name!r}, which is no distributed arm", "/rows/rpcs")
    silent = candidates - called
    for name in sorted(silent):
        yield Violation(f"arm {name!r} made no call", "/rows/rpcs")
    for arm in arms.candidates:
        for said in _calls_of(arm, [row for row in rows if row["arm"] == arm.name]):
            yield Violation(said, "/rows/rpcs")


def _calls_of(arm: Arm, rows: Sequence[StatedRpc]) -> Iterator[str]:
    """Yield what cannot be true of the calls of one arm."""
    if not rows:
        return
    answers = sum(len(row["seconds"]) for row in rows)
    drafts = sum(1 for sample in arm.samples for count in sample["drafted_per_step"] or () if count)
    if answers < drafts:
        yield f"{answers} answers for {drafts} drafts of {arm.name!r}"
    for row in rows:
        if len(row["seconds"]) != len(row["drafting_s"]):
            yield f"{len(row['seconds'])} answers of {arm.name!r}, {len(row['drafting_s'])} of them were computed"
        elif any(took < computed for took, computed in zip(row["seconds"], row["drafting_s"], strict=True)):
            yield f"a draft of {arm.name!r} was computed for longer than it took to come"
        yield from _link_of(arm.name, row)
    spent_s = sum(sum(row["seconds"]) for row in rows)
    total_s = sum(sample["stages"]["total_s"] for sample in arm.samples)
    if spent_s > total_s + 0.1:  # one ask is waited for at a time, and what another overtook is not listed
        yield f"{spent_s:.3f} s of calls in {total_s:.3f} s of samples of {arm.name!r}"


def _link_of(name: str, row: StatedRpc) -> Iterator[str]:
    """Yield what the calls of an arm say against the link that they went over."""
    if not row["bytes_sent"] or bool(row["seconds"]) > bool(row["bytes_received"]):
        yield f"{len(row['seconds'])} answers of {name!r} for {row['bytes_sent']} bytes, in {row['bytes_received']}"
    quickest_s, shortest_s = min(row["seconds"], default=math.inf), min(row["round_trips_s"])
    if shortest_s > _JITTER_S and quickest_s < shortest_s / 2:
        yield f"a draft of {name!r} came in {quickest_s:.4f} s, a round trip takes at least {shortest_s:.4f} s"
    named, usual_s = _NAMED_TRIP.fullmatch(name), statistics.median(row["round_trips_s"])
    if named is not None and usual_s < _NAMED_SHARE * int(named[1]) / 1e3:
        yield f"{name!r} asks over a link whose round trip takes {usual_s * 1e3:.2f} ms"
