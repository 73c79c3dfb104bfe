"""What the issue on remote drafting promises to show."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from benchmarks.show import own_tests
from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies import lagged_features, remote_faults
from benchmarks.studies.remote_identity import NAMESPACES
from benchmarks.studies.remote_link import HEALTH, ROWS, SMALL
from benchmarks.studies.remote_sweep import AGAIN, FORCED, PLAIN, PLANNED, TARGETS_MS, TRIPS_MS
from benchmarks.studies.report import FOLDER, report_of
from engine.distributed.gossip.membership import Membership, asked_next
from engine.distributed.kakeya.v1 import capability_pb2 as pb
from engine.measurement.ratio import PairedRatio, paired_ratio

STUDIES = "make studies AREA=distributed"
LEAST_PAIRS = 60


def identity(folder: Path = FOLDER) -> str | None:
    """Return by length of prompt and way on how many prompts drafts, id by id, and output were the same."""
    found: dict[tuple[str, str], dict[int, dict]] = defaultdict(dict)
    halved: dict[tuple[str, str], dict[int, bool]] = defaultdict(dict)
    for entry in report_of("distributed", "remote-identity", folder).entries():
        length = entry["case"].split(",")[0]
        for row in entry["rows"] if "by id" in entry["case"] else ():
            key = length, row["way"]
            if row["rows"] == "exact":
                found[key][row["prompt"]] = row
            else:
                halved[key][row["prompt"]] = row["same_output"]
    said = []
    for (length, way), rows in sorted(found.items()):
        ids, output = (sum(row[name] for row in rows.values()) for name in ("same_ids", "same_output"))
        said.append(f"{length}, {way}: drafts id by id {ids} of {len(rows)}, output {output} of {len(rows)}")
    if halved:
        same = [one for rows in halved.values() for one in rows.values()]
        said.append(f"rows in fewer bits: output {sum(same)} of {len(same)}")
    return "; ".join(said) or None


def lagging(folder: Path = FOLDER) -> str | None:
    """Return the tokens a step commits at each depth, by drafter, with features in time and a block late."""
    found = {}
    for entry in report_of("distributed", "lagged-features", folder).entries():
        for row in entry["rows"]:
            found[row["drafter"], row["depth"], row["lag_blocks"]] = row["tokens_per_step"]
    said = []
    for drafter, depth in sorted({(drafter, depth) for drafter, depth, _ in found}, key=lambda key: key[::-1]):
        ways = [found.get((drafter, depth, lag)) for lag in lagged_features.LAGS]
        told = " → ".join("?" if way is None else f"{way:.2f}" for way in ways)
        said.append(f"{drafter}, depth {depth}: {told}")
    count = len(lagged_features.cases())
    done = f"{len(found)} of {count} cases, tokens a step with features in time → a block late: "
    return f"{done}{'; '.join(said)}" if said else None


def fewer_bits(folder: Path = FOLDER) -> str | None:
    """Return by format of rows how many drafted tokens were accepted and bytes sent, of those with rows as they are."""
    found: dict[str, dict[tuple[str, int], dict]] = defaultdict(dict)
    for entry in report_of("distributed", "remote-identity", folder).entries():
        length = entry["case"].split(",")[0]
        for row in entry["rows"] if "by id" in entry["case"] else ():
            if row["way"] != NAMESPACES:
                found[row["rows"]][length, row["prompt"]] = row
    exact, said = found.pop("exact", {}), []
    for rows, taken in sorted(found.items()):
        both = sorted(taken.keys() & exact.keys())
        here, there = ([kind[key] for key in both] for kind in (exact, taken))
        sent, whole = (sum(row["sent"]["rows"] for row in kind) for kind in (there, here))
        accepted, before = (sum(row["accepted"] for row in kind) for kind in (there, here))
        steps = [sum(row["steps"] for row in kind) for kind in (there, here)]
        if before and whole:
            said.append(
                f"{rows}: {accepted} of {before} tokens accepted on {len(both)} prompts, {steps[0]} steps for "
                f"{steps[1]}, {100 * sent / whole:.0f} % of the bytes"
            )
    return "; ".join(said) or None


def curve(way: str = FORCED, folder: Path = FOLDER) -> dict[tuple[int, int], PairedRatio]:
    """Return by target and round-trip time the speed against plain decoding of the same prompts, nearest in time.

    Args:
        way: the remote drafter forced, or as planned: plain decoding's second time where it would not be asked, no
            point where that was not taken.
        folder: of the reports.
    """
    times: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    lacking: set[tuple[int, int]] = set()
    for entry in report_of("distributed", "remote-sweep", folder).entries():
        target_ms = int(entry["case"].split()[0])
        found = {(row["number"], row["way"], row["trip_ms"]): row for row in entry["rows"]}
        for (number, kind, trip_ms), row in found.items():
            if kind == FORCED:
                ours = row if way == FORCED or row["asked"] else found.get((number, AGAIN, None))
                if ours is None:
                    lacking.add((target_ms, trip_ms))
                else:
                    plain_s = ours["plain_s"] if "plain_s" in ours else found[number, PLAIN, None]["decode_s"]
                    times[target_ms, trip_ms].append((plain_s, ours["decode_s"]))
    return {
        key: paired_ratio([plain for plain, _ in pairs], [ours for _, ours in pairs])
        for key, pairs in times.items()
        if len(pairs) > 1 and key not in lacking
    }


def speeds(target_ms: int, trips_ms: tuple[int, ...], way: str = FORCED, folder: Path = FOLDER) -> str | None:
    """Return the curve of a target, each point with its interval and pairs."""
    found = curve(way, folder)
    points = {trip: found[target_ms, trip] for trip in trips_ms if (target_ms, trip) in found}
    if not points:
        return None
    said = ", ".join(f"{trip} ms {at.value:.2f}x [{at.low:.2f}, {at.high:.2f}] n {at.n}" for trip, at in points.items())
    return said if len(points) == len(trips_ms) else f"of {len(trips_ms)} points {len(points)}: {said}"


def never_slower() -> str | None:
    """Return the curves of both targets, the remote forced and where the planner may leave it out."""
    said = [
        f"{target or 'packaged'} ms a token, {word}: {at}"
        for target in TARGETS_MS
        for way, word in ((FORCED, "forced"), (PLANNED, "planned"))
        if (at := speeds(target, TRIPS_MS, way))
    ]
    return "; ".join(said) or None


def bytes_a_step() -> str | None:
    """Return the bytes of each kind of message by draft, over the short prompts of the identity study."""
    sent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    asks: dict[str, int] = defaultdict(int)
    for entry in report_of("distributed", "remote-identity").entries():
        for row in entry["rows"] if entry["case"].startswith("short") else ():
            asks[row["rows"]] += row["drafted_steps"]
            for kind, size in row["sent"].items():
                sent[row["rows"]][kind] += size
    if not asks:
        return None
    return "; ".join(
        f"{rows}: " + ", ".join(f"{kind} {size / asks[rows]:.0f}" for kind, size in sorted(kinds.items()))
        for rows, kinds in sent.items()
        if asks[rows]
    )


def link(case: str) -> dict[str, dict]:
    """Return the rows of one measurement of the link by what they are, none before it was made."""
    entries = report_of("distributed", "remote-link").entries()
    return {row["what"]: row for entry in entries if entry["case"] == case for row in entry["rows"]}


def link_cost() -> str | None:
    """Return what a small ask takes above its draft, and the speed of many rows beside TCP."""
    small, rows = link(SMALL), link(ROWS)
    said = [f"{what} {1e6 * row['p50_s']:.0f} µs p50, {1e6 * row['p99_s']:.0f} µs p99" for what, row in small.items()]
    if rows:
        stream, plain = rows["rows over the stream"], rows["as many bytes over TCP"]
        share = plain["p50_s"] / stream["p50_s"]
        said.append(f"{stream['bytes'] / 2**20:.1f} MiB at {100 * share:.0f} % of TCP, {stream['n']} times each")
    return "; ".join(said) or None


def health() -> str | None:
    """Return how soon health was answered idle and beside drafts."""
    found = link(HEALTH)
    said = [f"{what} {1e3 * row['p50_s']:.1f} ms p50, {1e3 * row['p99_s']:.1f} ms p99" for what, row in found.items()]
    return "; ".join(said) or None


def faults(folder: Path = FOLDER) -> str | None:
    """Return on how many faults the output was the same, and for how long one held a text up at most."""
    found = {}
    for entry in report_of("distributed", "remote-faults", folder).entries():
        found |= {row["fault"]: row for row in entry["rows"]}
    if not found:
        return None
    rows, known = list(found.values()), len(remote_faults.faults())
    said = f"{len(rows)} of {known} kinds: output unchanged on {sum(row['same_output'] for row in rows)}"
    apart = [row for row in rows if "longest_wait_s" in row]
    if apart:
        most = max(apart, key=lambda row: row["longest_wait_s"])
        said += f"; a draft was waited for at most {most['longest_wait_s']:.1f} s ({most['fault']})"
    if len(apart) < len(rows):
        most = max((row for row in rows if row not in apart), key=lambda row: row["longest_step_s"])
        said += f"; a whole step of others took at most {most['longest_step_s']:.1f} s ({most['fault']})"
    drafted = sum(row["drafted_steps_after"] > 0 for row in rows)
    return f"{said}; deadline {rows[0]['deadline_s']:g} s; drafts came again after {drafted}"


def sessions(folder: Path = FOLDER) -> str | None:
    """Return what thousands of sessions left behind at each end, and what happened at the most there may be."""
    said = []
    for entry in report_of("distributed", "remote-sessions", folder).entries():
        for row in entry["rows"]:
            if "end" in row:
                grown = (row["bytes_after"] - row["bytes_before"]) / 2**20
                said.append(
                    f"{row['end']} after {row['answered']} of {row['sessions']} sessions: {grown:+.1f} MiB, "
                    f"{row['files_after'] - row['files_before']:+d} files, "
                    f"{row['threads_after'] - row['threads_before']:+d} threads"
                )
            else:
                room = "there was room again" if row["room_after_one_closed"] else "there was NO room again"
                more = "refused" if row["one_more_refused"] else "NOT refused"
                said.append(f"{row['answered']} of {row['allowed']} at once answered, one more {more}, then {room}")
    return "; ".join(said) or None


def presets(folder: Path = FOLDER) -> str | None:
    """Return what each preset came to."""
    found = {}
    for entry in report_of("distributed", "remote-presets", folder).entries():
        found |= {(row["preset"], row["profile"]): row for row in entry["rows"]}
    said = [
        f"{preset.removeprefix('mlx-distributed-')}, {profile}: {row['decision']}, exit {row['exit']}"
        for (preset, profile), row in sorted(found.items())
    ]
    return "; ".join(said) or None


def gossip_rounds(counts: tuple[int, ...] = (4, 8, 16, 32), seeds: int = 3) -> str:
    """Return in how many rounds everybody knew everybody, at most over seeds, without loss; nodes on one clock."""
    said = []
    for count in counts:
        most = max(_rounds(count, random.Random(seed)) for seed in range(seeds))
        said.append(f"{count} nodes {most} of {math.ceil(math.log2(count)) + 3}")
    return f"rounds until all know, of those allowed: {', '.join(said)}"


def _rounds(count: int, chooser: random.Random) -> int:
    nodes = {f"n{number}": Membership(pb.Card(node=f"n{number}", generation=1), lambda: 0.0) for number in range(count)}
    names, rounds = list(nodes), 0
    for behind, name in pairwise(names):
        _exchange(nodes[name], nodes[behind])
    while any(len(node.cards()) < count for node in nodes.values()):
        rounds += 1
        for node in nodes.values():
            for name in asked_next([name for name in node.cards() if name != node.node], chooser):
                _exchange(node, nodes[name])
    return rounds


def _exchange(one: Membership, other: Membership) -> None:
    told = one.take(other.answer(one.ask()))
    if told is not None:
        other.answer(told)


LINES = (
    Line(
        "L1: in-process = loopback = network namespaces, drafts and output byte for byte, ≥ 60 prompts, short and far "
        "past the window, past 1,024 tokens",
        STUDIES,
        identity,
    ),
    proved(
        "perfect, wrong, late, dying, lying drafters: output equals plain decoding",
        "distributed",
        "perfect, wrong, late, dying, lying drafters",
    ),
    Line(
        "never slower: RTT 0 to 150 ms through a delay proxy, ≥ 60 pairs each, ≥ 512 tokens, lower bound ≥ 0.95x plain "
        "decoding at every point, the remote forced",
        STUDIES,
        never_slower,
    ),
    Line(
        "lower bound > 1.0 at 50 and 100 ms on a target of ≥ 40 ms a token (emulated), 150 ms printed",
        STUDIES,
        lambda: speeds(40, (50, 100, 150)),
    ),
    proved(
        "always 150 ms late on a 10 ms target: ≥ 0.98x at every depth, on a virtual clock",
        "distributed",
        "always late, on a virtual clock",
    ),
    Line("what rows in fewer bits cost in accepted tokens, measured", STUDIES, fewer_bits),
    Line("bytes a step printed by kind", "kakeya-engine distributed bench", bytes_a_step),
    Line(
        "small ask on an open stream ≤ 200 µs p50 above the draft; ≥ 4 MiB at ≥ 40 % of TCP in the same run",
        STUDIES,
        link_cost,
    ),
    Line("health answers ≤ 5 ms p99 while an 80 ms draft runs, beside an idle server in the same run", STUDIES, health),
    proved("gossip: Hypothesis state machine, real processes killed, stopped, restarted", "distributed", "gossip"),
    Line("gossip: ⌈log2 N⌉+3 rounds", "make show AREA=distributed", gossip_rounds),
    Line("faults, each ≤ 1 deadline and output unchanged", STUDIES, faults),
    Line("64 sessions bounded; 10,000 leak nothing", STUDIES, sessions),
    Line("the five presets through a runner", STUDIES, presets),
    Line(
        "branches drafted ahead, only if they win in the sweep; a drafter trained without newest features",
        f"{STUDIES} STUDY=lagged-features",
        lagging,
    ),
    own_tests.adds("distributed"),
)
