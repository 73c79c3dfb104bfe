"""What evicted rows cost that a host elsewhere makes again, beside pages on one layer, which need no link.

The host is a process of this machine behind a link of so many milliseconds a round trip. Codes are asked as in the
packaged set, token by token. Times are of a shared machine: read bytes, asks, and what a link adds to them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from statistics import median
from typing import Any

from benchmarks.studies.study import Entry, Row, Study
from bridge.gate.stats.binomial import paired_difference_lower
from engine.bench.restored import RestoredTrial
from engine.distributed.remote_rows import RestoreTraffic
from engine.isolation.delayed_link import DelayedLink
from engine.isolation.drafter_process import DrafterProcess, served_words
from engine.loading import Engine, load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import Prompt, answered, load_prompts
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

TARGET, F_THETA, TASK = "kakeya-tiny-qwen3", "kakeya-tiny-qwen3-ftheta64", "recall-one"
BACKENDS = ("mlx", "torch")
LINKS_MS = (0, 20, 80)
KEPT = "sink4+window64"
PAGES = f"{KEPT}+pages16x10+layer5"
LOCAL = ("native", PAGES, f"{KEPT}+ftheta64")
REMOTE = (f"{KEPT}+ftheta64@remote", f"{KEPT}+ftheta64@remote/bfloat16", f"{KEPT}+pages16x10+ftheta64@remote")
PROMPTS = {"mlx": 60, "torch": 12}
FEWER_PROMPTS, LINKED_PROMPTS, TOKENS = 12, 1, 28
"""Of pages that come over a stream, each a round trip, and behind a link, which changes times and no answer."""


def cases() -> Sequence[str]:
    """Return every arm, those that ask a host behind each link, on one backend before the other."""
    elsewhere = [f"{layout}, {link} ms" for link in LINKS_MS for layout in REMOTE]
    arms = [*(f"{layout}, no link" for layout in LOCAL), *elsewhere]
    return [f"{backend}, {arm}" for backend in BACKENDS for arm in arms]


def run(case: str, prompts: int | None = None) -> list[Row]:
    """Return a row for each prompt: whether its code was found, what was held, and what was moved and waited for."""
    backend, layout, link = case.split(", ")
    most = PROMPTS[backend] if link in {"no link", "0 ms"} else LINKED_PROMPTS
    count = prompts or (min(most, FEWER_PROMPTS) if "pages" in layout and "@remote" in layout else most)
    engine = _engine(backend)
    every = _prompts(backend)
    chosen = every[:: len(every) // count][:count]
    if link == "no link":
        return [_row(engine, CacheLayout.parse(layout), prompt) for prompt in chosen]
    with _elsewhere(engine, backend, float(link.removesuffix(" ms"))) as (restorer, traffic):
        return [_row(engine, CacheLayout.parse(layout), prompt, restorer, traffic) for prompt in chosen]


def _row(
    engine: Engine, layout: CacheLayout, prompt: Prompt, restorer: Any = None, traffic: RestoreTraffic | None = None
) -> Row:
    decode = RestoredTrial(engine, TOKENS).decode(prompt.ids, layout, restorer, traffic)
    return {
        "prompt": prompt.id,
        "prompt_tokens": len(prompt.ids),
        "found": answered(prompt, Tokenizer(engine.folder).decode(decode.tokens)),
        "tokens": list(decode.tokens),
        "held_bytes": decode.held_bytes,
        "sent_bytes": decode.traffic.sent,
        "received_bytes": decode.traffic.received,
        "asks": decode.traffic.asks,
        "waited_s": round(decode.traffic.waited_s, 3),
        "prefill_s": round(decode.prefill_s, 3),
        "decode_s": round(decode.decode_s, 3),
    }


@contextmanager
def _elsewhere(engine: Engine, backend: str, link_ms: float) -> Iterator[tuple[Any, RestoreTraffic]]:
    """Yield what asks a host in a process of its own, behind a link, and what counts that."""
    from engine.distributed.rpc.remote import remote_restoration  # noqa: PLC0415 (the registry needs no gRPC)

    device = "cpu" if backend == "torch" else None
    options = argparse.Namespace(backend=backend, device=device, dtype=None, target=TARGET, drafter=f"{TARGET}-dflash")
    process = DrafterProcess([*served_words(options), "--restoration", F_THETA])
    link = DelayedLink(process.address, link_ms)
    try:
        remote = remote_restoration(link.address)
        yield engine.backend.restored_elsewhere(remote, engine.target), remote.traffic
    finally:
        link.close()
        process.close()


@cache
def _engine(backend: str) -> Engine:
    folder = resolve_model(TARGET)
    loaded = load_backend(backend, "cpu" if backend == "torch" else None)
    return open_engine(loaded, str(folder), own_drafter(folder), restoration=F_THETA)


@cache
def _prompts(backend: str) -> tuple[Prompt, ...]:
    return load_prompts(TASK, Tokenizer(_engine(backend).folder), TARGET).prompts


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return for each arm codes found, the bound beside native, the prompts answered as in process, bytes and waits."""
    lines = []
    for backend in BACKENDS:
        native = _by_prompt(entries, f"{backend}, native, no link")
        here = _by_prompt(entries, f"{backend}, {KEPT}+ftheta64, no link")
        for entry in entries:
            of, layout, link = entry["case"].split(", ")
            if of != backend:
                continue
            rows = {row["prompt"]: row for row in entry["rows"]}
            words = f"{backend} {layout} {link}: {sum(row['found'] for row in rows.values())}/{len(rows)} found"
            both = sorted(rows.keys() & native.keys())
            if both and layout != "native":
                gained = sum(rows[each]["found"] and not native[each]["found"] for each in both)
                lost = sum(native[each]["found"] and not rows[each]["found"] for each in both)
                words += f" (> {100 * paired_difference_lower(gained, lost, len(both), 0.95):.0f} pp)"
            words += f", {_median(rows, 'held_bytes') / 1e6:.2f} MB held"
            if _median(rows, "asks"):
                same = sum(rows[each]["tokens"] == here[each]["tokens"] for each in rows.keys() & here.keys())
                words += f", {same}/{len(rows.keys() & here.keys())} as made here"
                sent, received = (_median(rows, f"{way}_bytes") / 1e6 for way in ("sent", "received"))
                words += f", sent {sent:.2f} MB, received {received:.2f} MB in {_median(rows, 'asks'):.0f} asks"
                words += f", {_median(rows, 'waited_s'):.2f} s waited"
            lines.append(f"{words}, {_median(rows, 'prefill_s') + _median(rows, 'decode_s'):.2f} s")
    return lines


def _by_prompt(entries: Sequence[Entry], case: str) -> dict[str, Row]:
    return {row["prompt"]: row for entry in entries if entry["case"] == case for row in entry["rows"]}


def _median(rows: dict[str, Row], name: str) -> float:
    return median(row[name] for row in rows.values())


STUDY = Study(
    "restored-elsewhere",
    "What do rows made again on another host cost beside pages on one layer?",
    cases,
    run,
    "half an hour",
    summary,
)
