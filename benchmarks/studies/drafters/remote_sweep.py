"""Speed with a drafter behind links of several round-trip times against plain decoding, prompt by prompt in one run.

The target is the packaged one, and the same slowed by sleeping to 40 ms a token: an emulation, labelled so. Of each
prompt the arms are whole decodes in a drawn order: the drafter here beside near links, and one arm a round-trip time
with the remote drafter forced. The slowed target decodes each prompt plainly once, at a drawn place among them. The
packaged one takes two or three seconds, in which a shared machine may become slower by a quarter: it decodes plainly
before and after every arm, and the two nearest are what an arm is compared with. There plain decoding is an arm itself,
which stands for what the planner had chosen where, by terms measured on other prompts, it would leave the drafter out;
beside the slowed target such points have no planned arm. The controller of each decode begins cold. The first cases are
a few pairs of every point that is in question, so that a curve is soon there; near links of the slowed target, where a
drafter gains most, come last.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from statistics import geometric_mean
from typing import Any

from benchmarks.studies.study import Entry, Row, Study
from engine.bench.remote import RemoteDecode, RemoteTrial, measured_terms
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.distributed.placement import PlacementSnapshot, plan
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.methods import DFLASH
from engine.distributed.rpc.remote import remote_model
from engine.isolation.delayed_link import DelayedLink
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.ratio import PairedRatio, paired_ratio
from engine.measurement.selection import load_prompts
from engine.options import longest_draft
from engine.tokenizer import Tokenizer

PAIR, PROMPTS, PART, TOKENS = "kakeya-tiny-gemma4", 60, 4, 512
TRIPS_MS = (0, 5, 20, 50, 100, 150)
NEAR_MS, FAR_MS = TRIPS_MS[:3], TRIPS_MS[3:]
TARGETS_MS = (40, 0)
FIRST = 1
"""Parts of both targets that come before the rest of the packaged one."""
WayAndTrip = tuple[str, int | None]
PLAIN, AGAIN, HERE, FORCED, PLANNED = "plain", "plain again", "here", "elsewhere", "planned"
TERMS_PROMPTS, TERMS_TOKENS, TERMS_DEPTH = 2, 64, 3


def cases() -> Sequence[str]:
    """Return the links of each target in parts of ``PART`` prompts: a few first, near links of a slow one last."""
    return list(_cases())


def points(case: str) -> tuple[int, tuple[int, ...], int]:
    """Return the milliseconds a token of a case, its round-trip times and its part."""
    return _cases()[case]


@cache
def _cases() -> dict[str, tuple[int, tuple[int, ...], int]]:
    parts = range(PROMPTS // PART)
    ordered = [(target, trips, part) for part in parts[:FIRST] for target, trips in ((40, FAR_MS), (0, TRIPS_MS))]
    ordered += [(0, TRIPS_MS, part) for part in parts[FIRST:]] + [(40, FAR_MS, part) for part in parts[FIRST:]]
    ordered += [(40, NEAR_MS, part) for part in parts]
    return {
        f"{target} ms a token, links of {trips[0]} to {trips[-1]} ms, part {part}": (target, trips, part)
        for target, trips, part in ordered
    }


@cache
def _engine() -> Any:
    target = resolve_model(PAIR)
    return open_engine(load_backend("mlx"), str(target), own_drafter(target))


@cache
def _remote(trip_ms: int) -> Any:
    engine = _engine()
    link = DelayedLink(_server().address, trip_ms)
    channel = DrafterChannel(link.address, DFLASH)
    return remote_model(channel, engine.backend, engine.target, engine.folder, rows="bfloat16")


@cache
def _server() -> DrafterProcess:
    return DrafterProcess(["--target", PAIR])


@cache
def _planned(target_ms: int) -> frozenset[int]:
    """Return over which links the planner asks the drafter, by terms measured beside plain decoding of each prompt."""
    engine, depth = _engine(), FixedDepth(TERMS_DEPTH)
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts[-TERMS_PROMPTS:]
    trial = RemoteTrial(engine, TERMS_TOKENS, target_ms / 1e3)
    plain: list[RemoteDecode] = []
    there: dict[int, list[RemoteDecode]] = {trip: [] for trip in TRIPS_MS}
    for number, prompt in enumerate((prompts[0], *prompts)):
        decode_plain = trial.decode(prompt.ids, None, FixedDepth(0))
        beside = {trip: trial.decode(prompt.ids, _remote(trip), depth) for trip in TRIPS_MS}
        if number:  # the first prompt warms every way up
            plain.append(decode_plain)
            for trip, decode in beside.items():
                there[trip].append(decode)
    plain_s = sum(decode.decode_s for decode in plain) / sum(len(decode.drafts) for decode in plain)
    terms = {trip: measured_terms("there", decodes) for trip, decodes in there.items()}
    return frozenset(trip for trip in TRIPS_MS if plan(PlacementSnapshot(plain_s, (terms[trip],))).node)


def run(case: str) -> list[Row]:
    """Decode the prompts of a part, each in a drawn order of arms.

    Raises:
        RuntimeError: two arms gave different tokens.
    """
    target_ms, trips, part = points(case)
    engine, first, planned = _engine(), part * PART, _planned(target_ms)
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts
    trial, rows = RemoteTrial(engine, TOKENS, target_ms / 1e3), []
    arms: dict[WayAndTrip, Any] = {(FORCED, trip): _remote(trip) for trip in trips}
    if 0 in trips:
        arms[HERE, None] = engine.drafter
    if not target_ms:
        arms[AGAIN, None] = None
    for number in range(first, first + PART):
        prompt, chooser = prompts[number % len(prompts)], random.Random(f"{case}/{number}")
        order = list(arms)
        chooser.shuffle(order)
        order = _with_plain(order, chooser, between=not target_ms)
        decodes: list[RemoteDecode] = []
        for arm in order:
            drafter = arms.get(arm)
            depth = FixedDepth(0) if drafter is None else ControlledDepth(longest_draft(drafter))
            decodes.append(trial.decode(prompt.ids, drafter, depth))
        if len({decode.tokens for decode in decodes}) > 1:
            raise RuntimeError(f"{case}, {prompt.id}: the arms gave different tokens")
        for place, ((way, trip), decode) in enumerate(zip(order, decodes, strict=True)):
            row = {"prompt": prompt.id, "number": number, "way": way, "trip_ms": trip, "asked": trip in planned}
            if not target_ms and way != PLAIN:
                nearest = (decodes[place - 1].decode_s, decodes[place + 1].decode_s)
                row["plain_s"] = geometric_mean(nearest)
            rows.append(row | decode.row())
    return rows


def _with_plain(order: list[WayAndTrip], chooser: random.Random, *, between: bool) -> list[WayAndTrip]:
    """Return an order of arms with plain decoding before and after each, or at one drawn place among them."""
    plain: WayAndTrip = (PLAIN, None)
    if between:
        return [plain, *(each for arm in order for each in (arm, plain))]
    place = chooser.randrange(len(order) + 1)
    return [*order[:place], plain, *order[place:]]


def curve(entries: Sequence[Entry], way: str = FORCED) -> dict[tuple[int, int], PairedRatio]:
    """Return by target and round-trip time the speed against plain decoding of the same prompts, nearest in time.

    Args:
        entries: of the report.
        way: the remote drafter forced, or as planned: plain decoding's second time where it would not be asked, no
            point where that was not taken.
    """
    seconds: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    lacking: set[tuple[int, int]] = set()
    for entry in entries:
        target_ms = int(entry["case"].split()[0])
        decodes = {(row["number"], row["way"], row["trip_ms"]): row for row in entry["rows"]}
        for (number, kind, trip_ms), row in decodes.items():
            if kind == FORCED:
                ours = row if way == FORCED or row["asked"] else decodes.get((number, AGAIN, None))
                if ours is None:
                    lacking.add((target_ms, trip_ms))
                else:
                    plain_s = ours["plain_s"] if "plain_s" in ours else decodes[number, PLAIN, None]["decode_s"]
                    seconds[target_ms, trip_ms].append((plain_s, ours["decode_s"]))
    return {
        point: paired_ratio([plain for plain, _ in pairs], [ours for _, ours in pairs])
        for point, pairs in seconds.items()
        if len(pairs) > 1 and point not in lacking
    }


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return the curves of both targets, the remote drafter forced and where the planner may leave it out."""
    lines = []
    for target in TARGETS_MS:
        for way in (FORCED, PLANNED):
            points = {trip: at for (of, trip), at in sorted(curve(entries, way).items()) if of == target}
            speeds = (
                f"{trip} ms {at.value:.2f}x [{at.low:.2f}, {at.high:.2f}] n {at.n}" for trip, at in points.items()
            )
            if points:
                lines.append(f"{target or 'packaged'} ms a token, {way}: {', '.join(speeds)}")
    return lines or ["too few pairs yet"]


STUDY = Study(
    "remote-sweep", "What is a remote drafter worth at which round-trip time?", cases, run, "three hours", summary
)
