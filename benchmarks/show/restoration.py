"""What the issue on bounded keys and values promises to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.show.identity import ran
from benchmarks.show.line import Line
from benchmarks.studies import evicted_bytes, page_recall, restored_recall, streamed_answers
from benchmarks.studies.report import FOLDER, report_of
from benchmarks.studies.study import Study

STREAMED = "tests/conformance/engine/test_streamed_rows.py"
PAGED = "tests/conformance/engine/test_pages.py"
STORE = "tests/unit/engine/test_page_store.py"
PROJECTED = "tests/conformance/engine_families/test_projected_rows.py"
BOUNDED = "tests/conformance/engine/test_caches_and_drafters.py"
RESTORED = "tests/conformance/engine/test_restored_rows.py"
PYTEST = "python -m pytest -n 0 -q"
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


def recall(entries: list[dict[str, Any]]) -> str:
    """Return by target and arm how many codes were found."""
    rows = {
        (target, arm): list(_rows(entries, f"{target}, {arm}, "))
        for target in page_recall.TARGETS
        for arm in page_recall.ARMS
    }
    found = {key: f"{sum(row['found'] for row in each)}/{len(each)}" for key, each in rows.items() if each}
    return "; ".join(f"{target} {arm} {count}" for (target, arm), count in found.items())


def frontier() -> str | None:
    """Return how many hidden codes each way found, and in how many bytes, of the cases that the report has."""
    entries = report_of("restoration", "restored-recall").entries()
    found = {entry["case"]: entry["rows"][0] for entry in entries}
    if not found:
        return None
    told = [
        f"{case} {row['right']}/{row['of']} in {(row['row_bytes'] + row['latent_bytes']) / 1e6:.2f} MB"
        for case, row in found.items()
    ]
    return f"{len(found)} of {len(restored_recall.cases())} cases: {'; '.join(told)}"


def _rows(entries: Iterable[dict[str, Any]], begin: str) -> Iterable[dict[str, Any]]:
    return (row for entry in entries if entry["case"].startswith(begin) for row in entry["rows"])


LINES = (
    Line(
        "stream: tokens identical to native in >= 300 generations (both targets, both backends, DFlash, n-gram, none; "
        "prompts at, past and 8x past the pool; every task)",
        f"{STUDIES} STUDY=streamed-answers",
        lambda: measured(streamed_answers.STUDY, answers),
    ),
    Line(
        "stream: resident bytes flat from 1K to 8K (upper bound of growth <= 2 %), >= 8x below native at 8K; with the "
        "drafter's context, and of pages with index (to 32K: not measured)",
        f"{STUDIES} STUDY=evicted-bytes",
        lambda: measured(evicted_bytes.STUDY, resident),
    ),
    Line(
        "stream: bytes read per committed token over acceptance, as a curve",
        f"{STUDIES} STUDY=streamed-answers",
        lambda: measured(streamed_answers.STUDY, reading),
    ),
    Line("stream: tokens/s beside native, faster or not", "not built"),
    Line(
        "paged: recall >= .95 of native (paired Tango bound > -5 pp, 150 episodes, native >= .9, recency-only <= .5) "
        "at >= 8x fewer resident bytes, index and drafter included, per task; 'best single exact layer' is an arm "
        "(so far one task at 1,900 tokens: counts, no bound)",
        f"{STUDIES} STUDY=page-recall",
        lambda: measured(page_recall.STUDY, recall),
    ),
    Line(
        "f_theta: frontier recall x bytes over rank {16, 32, 64, c_p} x loss x input, 3 seeds, relative error by "
        "layer, the alpha where recall halves; bounded and native prefill (so far contexts forwarded with the layout "
        "itself; no native prefill, no alpha)",
        f"{STUDIES} STUDY=restored-recall",
        frontier,
    ),
    Line("f_theta: which of the seed's conclusions hold", "not built"),
    Line("positions forwarded a step = block; prefill at most two forwards", "not built"),
    Line(
        "sessions side by side equal each alone (paged ones)",
        f"{PYTEST} {PAGED} -k side",
        lambda: ran(PAGED, "-k", "side"),
    ),
    Line(
        "identity <= 1e-4 and noise > .1 per layer kind, KV-sharing layers included, on both backends, and the test "
        "fails when injection is cut",
        f"{PYTEST} {RESTORED}",
        lambda: ran(RESTORED),
    ),
    Line(
        "rows made again from a layer's input are bit for bit the cached ones, on both backends",
        f"{PYTEST} {PROJECTED}",
        lambda: ran(PROJECTED),
    ),
    Line(
        "pages: fixed pool, bit-exact in and out, crop-exact, a set per layer; policies attention, codes, bounds, "
        "drafter, recent; both backends",
        f"{PYTEST} {PAGED} {STREAMED}",
        lambda: ran(PAGED, STREAMED, "-m", "not slow"),
    ),
    Line(
        "a page file truncated, full, of another process or session, or closed is one error, and nothing is left "
        "after crash or kill -9",
        f"{PYTEST} {STORE}",
        lambda: ran(STORE),
    ),
    Line(
        "one exact layer among bounded ones is the model under those masks, drafted or not, on both backends",
        f"{PYTEST} {BOUNDED} -k 'masks or exact'",
        lambda: ran(BOUNDED, "-k", "masks or exact", "-m", "not slow"),
    ),
)
