"""Whether drafting changes a token: each way to draft beside the array library's own greedy decoding, in float32.

Both packaged pairs on both backends. The library's answer comes from the code that a user would run otherwise
(``NativeDecoder``), not from ours at depth 0, which is a way of its own here. The drafter elsewhere answers over a link
of 100 ms a round trip, and over one that passes nothing on after its third draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.studies.study import Entry, Row, Study, rows_of
from engine.bench.remote import RemoteTrial
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.methods import DFLASH
from engine.distributed.rpc.remote import remote_model
from engine.drafters.ngram import NgramModel
from engine.isolation.delayed_link import DelayedLink
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import load_prompts
from engine.options import longest_draft
from engine.stopping import Stopping
from engine.tokenizer import Tokenizer
from engine.types import Draft
from tests.fakes.fault_proxy import fault_proxy

PAIRS = ("kakeya-tiny-qwen3", "kakeya-tiny-gemma4")
BACKENDS = ("mlx", "torch")
PROMPTS, BLOCK, TOKENS, CHUNK = 60, 12, 64, 512
TRIP_MS, PATIENCE_S, ANSWERED = 100, 0.5, 3
WAYS = ("plain", "1", "7", "auto", "lookup 7", "both auto", "elsewhere 3", "elsewhere auto", "falls silent")


def cases() -> list[str]:
    """Return a case for every few prompts of each pair on each backend."""
    return [f"{pair} {backend} {start}" for start in range(0, PROMPTS, BLOCK) for pair in PAIRS for backend in BACKENDS]


def run(case: str) -> list[Row]:
    """Decode the prompts of a case in every way.

    Raises:
        RuntimeError: the library gave another number of tokens than it was asked for.
    """
    pair, backend, start = case.split()
    engine = _engine(pair, backend)
    trial, rows = RemoteTrial(engine, TOKENS), []
    prompts = load_prompts("code-structured", Tokenizer(engine.folder), pair).prompts
    for prompt in prompts[int(start) : int(start) + BLOCK]:
        steps = engine.native.decode(prompt.ids, Stopping(TOKENS), CHUNK)
        expected = tuple(token for step in steps for token in step.tokens)
        if len(expected) != TOKENS:
            raise RuntimeError(f"{case}, {prompt.id}: the library decoded {len(expected)} tokens, expected {TOKENS}")
        row: Row = {"prompt": prompt.id, "differ": [], "drafted_steps": {}}
        for way in WAYS:
            decode = _decode(pair, backend, trial, prompt.ids, way)
            row["drafted_steps"][way] = decode.drafted_steps
            if decode.tokens != expected:
                row["differ"].append(way)
        rows.append(row)
    return rows


def _decode(pair: str, backend: str, trial: RemoteTrial, ids: tuple[int, ...], way: str) -> Any:
    engine = trial.engine
    drafter, _, depth = way.rpartition(" ")
    if way == "plain":
        return trial.decode(ids, None, FixedDepth(0))
    if way == "falls silent":
        with fault_proxy(_server(pair, backend).address) as link:
            channel = DrafterChannel(link.address, DFLASH)
            try:
                return trial.decode(ids, _Silenced(_remote(engine, channel), link), FixedDepth(3))
            finally:
                link.tell("pass")
                channel.close()
    models: dict[str, Any] = {
        "": lambda: engine.drafter,
        "lookup": NgramModel,
        "both": lambda: _both(pair, backend).drafter,
        "elsewhere": lambda: _remote(engine, _late(pair, backend)),
    }
    model = models[drafter]()
    return trial.decode(
        ids, model, ControlledDepth(longest_draft(model)) if depth == "auto" else FixedDepth(int(depth))
    )


class _Silenced:
    """A remote drafter whose link passes nothing on after a few drafts."""

    def __init__(self, inner: Any, link: Any) -> None:
        self._inner, self._link, self._ask_count = inner, link, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self) -> _Silenced:
        """Open a sequence."""
        return _Silenced(self._inner.open(), self._link)

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Ask, and silence the link before the ask that is one too many."""
        if self._ask_count == ANSWERED:
            self._link.tell("half-open")
        self._ask_count += 1
        draft: Draft = self._inner.ask(bonus, position, count, wait_s)
        return draft


def _remote(engine: Any, channel: DrafterChannel) -> Any:
    return remote_model(channel, engine.backend, engine.target, engine.folder, patience_s=PATIENCE_S)


@cache
def _engine(pair: str, backend: str) -> Any:
    target = resolve_model(pair)
    device = "cpu" if backend == "torch" else None
    return open_engine(load_backend(backend, device=device, dtype="float32"), str(target), own_drafter(target))


@cache
def _both(pair: str, backend: str) -> Any:
    target = resolve_model(pair)
    device = "cpu" if backend == "torch" else None
    own = load_backend(backend, device=device, dtype="float32")
    return open_engine(own, str(target), f"{own_drafter(target)},ngram")


@cache
def _server(pair: str, backend: str) -> DrafterProcess:
    return DrafterProcess(["--target", pair, "--backend", backend, "--dtype", "float32"])


@cache
def _late(pair: str, backend: str) -> DrafterChannel:
    return DrafterChannel(_link(pair, backend).address, DFLASH)


@cache
def _link(pair: str, backend: str) -> DelayedLink:
    return DelayedLink(_server(pair, backend).address, TRIP_MS)


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return how many answers differ, by way, and in how many of them a draft was verified at all."""
    rows = rows_of(entries)
    lines = []
    for way in WAYS:
        differ = sum(way in row["differ"] for row in rows)
        drafted = sum(row["drafted_steps"][way] > 0 for row in rows)
        lines.append(f"{way}: {differ} of {len(rows)} answers of {TOKENS} tokens differ; {drafted} verified a draft")
    return lines


STUDY = Study(
    "identity",
    "does drafting change a token, here, elsewhere, late, or when the link falls silent?",
    cases,
    run,
    "15 minutes, one thread",
    summary,
)
