"""What the issue on bounded keys and values promises to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.show import own_tests
from benchmarks.show.line import Line
from benchmarks.show.page_recall import recall
from benchmarks.show.proofs import proved
from benchmarks.studies import (
    bounded_presets,
    evicted_bytes,
    page_recall,
    restored_recall,
    streamed_answers,
    streamed_speed,
)
from benchmarks.studies.report import FOLDER, report_of
from benchmarks.studies.study import Study

STUDIES = "make studies AREA=restoration"


def measured(study: Study, said: Callable[[list[dict[str, Any]]], str]) -> str | None:
    """Return what is said of the cases of a study that are done, and how many of how many; None before the first."""
    known = set(study.cases())
    entries = [entry for entry in report_of("restoration", study.name, FOLDER).entries() if entry["case"] in known]
    return f"{said(entries)} ({len(entries)} of {len(known)} cases)" if entries else None


def answers(entries: list[dict[str, Any]]) -> str:
    """Return how many streamed answers differ from native ones."""
    rows = [row for entry in entries for row in entry["rows"]]
    return f"{sum(row['differ'] for row in rows)} of {sum(row['answers'] for row in rows)} generations differ"


def reading(entries: list[dict[str, Any]]) -> str:
    """Return the bytes read for each token over tokens a forward, by way, of the longest prompts."""
    longest = f"{max(streamed_answers.LENGTHS)} tokens"
    by_way: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        for row in entry["rows"] if entry["case"].endswith(longest) else ():
            by_way.setdefault(row["way"], []).append(row)
    found = {
        way: [sum(row[key] for row in rows) for key in ("bytes_read", "tokens", "forwards", "answers")]
        for way, rows in by_way.items()
    }
    points = (
        f"{way}: {read / tokens / 1e6:.2f} MB at {(tokens - answers) / steps:.2f}"
        for way, (read, tokens, steps, answers) in found.items()
    )
    return "; ".join(points) or "no long prompt yet"


def resident(entries: list[dict[str, Any]]) -> str:
    """Return by target and layout the bytes at the shortest and the longest context, and how far below native."""
    held: dict[tuple[str, str], dict[int, int]] = {}
    for entry in entries:
        where = entry["case"].rpartition(", ")[0]
        for row in entry["rows"]:
            held.setdefault((where, row["layout"]), {})[row["context"]] = row["kv_bytes"] + row["drafter_bytes"]
    said = []
    for (where, layout), sizes in sorted(held.items()):
        longest, native = max(sizes), held[where, "native"]
        if layout != "native":
            grown = sizes[longest] / sizes[min(sizes)] - 1
            below = native[longest] / sizes[longest]
            said.append(f"{where}, {layout}: {grown:+.1%} from {min(sizes)} to {longest}, {below:.1f}x below native")
    return "; ".join(said)


def speed(entries: list[dict[str, Any]]) -> str:
    """Return by case how fast each streamed way is beside native decoding without a drafter."""
    told = []
    for entry in entries:
        ways = (
            f"{row['layout'].removeprefix('sink4+window64+')} {row['drafter']} {row['over_native']:.2f}x"
            for row in entry["rows"]
        )
        told.append(f"{entry['case']}: {', '.join(ways)}")
    return "; ".join(told)


def _restored() -> dict[str, dict[str, Any]]:
    """Return the row of every case of restored recall that is done."""
    return {entry["case"]: entry["rows"][0] for entry in report_of("restoration", "restored-recall").entries()}


def frontier() -> str | None:
    """Return how many hidden codes each way found, and in how many bytes, of the cases that the report has."""
    found = _restored()
    if not found:
        return None
    told = [
        f"{case} {row['right']}/{row['of']} in {(row['row_bytes'] + row['latent_bytes']) / 1e6:.2f} MB"
        for case, row in found.items()
    ]
    return f"{len(found)} of {len(restored_recall.cases())} cases: {'; '.join(told)}"


def errors_by_layer() -> str | None:
    """Return by rank the share of the squares of keys and values that is missed on each layer, one seed."""
    told = []
    for case, row in _restored().items():
        if case.endswith(", context, seed 1") and row["held_out_error"]:
            missed = row["held_out_error"]
            layers = sorted({name.partition(".")[0] for name in missed}, key=int)
            pairs = (f"{missed[f'{layer}.keys']:.2f}/{missed[f'{layer}.values']:.2f}" for layer in layers)
            told.append(f"{row['layout']}: {' '.join(pairs)}")
    return "; ".join(told) or None


def halved() -> str | None:
    """Return how many codes are found with rows so far of the way from exact to rank 16's, and where it halves."""
    found = _restored()
    ends = {0.0: found.get("native"), 1.0: found.get(f"{restored_recall.BOUNDED}+ftheta16, context, seed 1")}
    between = {alpha: found.get(restored_recall.mixed(alpha)) for alpha in restored_recall.ALPHAS}
    rows = {alpha: row for alpha, row in sorted({**ends, **between}.items()) if row is not None}
    if len(rows) < len(ends) + len(between):
        return None
    told = ", ".join(f"{alpha:g}: {row['right']}/{row['of']}" for alpha, row in rows.items())
    below = [alpha for alpha, row in rows.items() if 2 * row["right"] <= rows[0.0]["right"]]
    return f"{told}; at or below half of native from {min(below):g} on" if below else f"{told}; never half of native"


def conclusions() -> str | None:
    """Return which conclusions of the first project the restored-recall report supports, with its counts."""
    found = _restored()
    kept = restored_recall.BOUNDED
    asked = {
        "a window alone forgets": (found.get(kept), False),
        "restoring every layer brings codes back (rank 64)": (found.get(restored_recall.SHIPPED), True),
        "one exact layer alone suffices (layer 5)": (found.get(f"{kept}+exact5"), True),
        "an early exact layer does not (layer 3)": (found.get(f"{kept}+exact3"), False),
        "reading the drafter's rows serves as well": (found.get(f"{kept}+ftheta64, drafter_rows, seed 1"), True),
        "a small rank suffices (16)": (found.get(f"{kept}+ftheta16, context, seed 1"), True),
    }
    native = found.get("native")
    if native is None:
        return None
    told = []
    for said, (row, finds) in asked.items():
        if row is not None:
            holds = (2 * row["right"] > native["right"]) == finds
            told.append(f"{said}: {'holds' if holds else 'does not hold'}, {row['right']}/{row['of']}")
    return "; ".join(told)


def committed() -> str | None:
    """Return which presets have a committed run, its profile, and what its verdict is."""
    entries = report_of("restoration", bounded_presets.STUDY.name).entries()
    rows = [row for entry in entries for row in entry["rows"]]
    told = (f"{row['preset']} {row['profile']} {row['decision']}, exit code {row['exit']}" for row in rows)
    of = len(bounded_presets.cases())
    return f"{len(rows)} of {of}: {'; '.join(told)}" if rows else None


LINES = (
    Line(
        "stream: tokens identical to native in >= 300 generations (both targets, both backends, DFlash, n-gram, none; "
        "prompts at, past and 8x past the pool; every task)",
        f"{STUDIES} STUDY=streamed-answers",
        lambda: measured(streamed_answers.STUDY, answers),
    ),
    Line(
        "stream: resident bytes flat from 1K to 8K (upper bound of growth <= 2 %), >= 8x below native at 8K; with the "
        "drafter's context, and of pages with index; bytes only to 32K",
        f"{STUDIES} STUDY=evicted-bytes",
        lambda: measured(evicted_bytes.STUDY, resident),
    ),
    Line(
        "stream: bytes read per committed token over acceptance, as a curve",
        f"{STUDIES} STUDY=streamed-answers",
        lambda: measured(streamed_answers.STUDY, reading),
    ),
    Line(
        "stream: tokens/s beside native, faster or not",
        f"{STUDIES} STUDY=streamed-speed",
        lambda: measured(streamed_speed.STUDY, speed),
    ),
    Line(
        "paged: recall >= .95 of native (paired Tango bound > -5 pp, 150 episodes, native >= .9, recency-only <= .5) "
        "at >= 8x fewer resident bytes, index and drafter included, per task; 'best single exact layer' is an arm "
        "(codes found, lower bound of the difference, how many times fewer bytes)",
        f"{STUDIES} STUDY=page-recall",
        lambda: measured(page_recall.STUDY, recall),
    ),
    Line(
        "f_theta: frontier recall x bytes over rank {16, 32, 64, c_p} x loss x input, 3 seeds; bounded and native "
        "prefill",
        f"{STUDIES} STUDY=restored-recall",
        frontier,
    ),
    Line(
        "f_theta: relative error by layer (keys/values missed, layers in order)",
        f"{STUDIES} STUDY=restored-recall",
        errors_by_layer,
    ),
    Line(
        "f_theta: the alpha where recall halves, on the way from exact rows to those of rank 16",
        f"{STUDIES} STUDY=restored-recall",
        halved,
    ),
    proved(
        "f_theta: mse, cos_mag, combined, attn_distill and attn_distill_hybrid with their weights applied, and "
        "end-to-end KL, on tiny models; a training that was stopped ends in the same file",
        "restoration",
        "trained by each loss, stopped or not",
    ),
    proved(
        "rows are kept on the layers a layout names by +exact and on no other, counted from buffers, on both backends",
        "restoration",
        "exact layers keep every row",
    ),
    Line("f_theta: which of the seed's conclusions hold", f"{STUDIES} STUDY=restored-recall", conclusions),
    proved(
        "positions forwarded a step = block; prefill at most two forwards: once, counted",
        "restoration",
        "positions forwarded",
    ),
    proved(
        "sessions side by side equal each alone (paged, and restored on different prompts)",
        "restoration",
        "sessions side by side",
    ),
    proved(
        "identity <= 1e-4 and noise > .1 per layer kind, KV-sharing layers included, on both backends, and the test "
        "fails when injection is cut",
        "restoration",
        "identity and noise",
    ),
    proved(
        "rows made again from a layer's input are bit for bit the cached ones, on both backends",
        "restoration",
        "rows made again",
    ),
    proved(
        "pages: fixed pool, bit-exact in and out, crop-exact, a set per layer; policies attention, codes, bounds, "
        "drafter, recent; both backends",
        "restoration",
        "pages and their policies",
    ),
    proved(
        "a page file truncated, of another process or session, or closed, and a full disk, is one error; it has no "
        "name to delete, and nothing is left after crash or kill -9, during a write too",
        "restoration",
        "stores of pages",
    ),
    proved(
        "one exact layer among bounded ones is the model under those masks, drafted or not, on both backends",
        "restoration",
        "one exact layer",
    ),
    proved(
        "report kind bounded_recall refuses cut injection, a pool as large as the context, index or drafter left out "
        "of the bytes, a restored arm with 0 injected rows",
        "restoration",
        "cheats in bounded recall",
    ),
    proved(
        "bounded_recall from the command line: answers, text, bytes, counters and canaries come out the same again",
        "restoration",
        "bounded recall comes out again",
    ),
    Line("presets: one committed report each", f"{STUDIES} STUDY=bounded-presets", committed),
    proved(
        "bad input: pool smaller than a block or larger than the context, exact layer out of range",
        "restoration",
        "layouts that cannot be",
    ),
    own_tests.adds("restoration"),
)
