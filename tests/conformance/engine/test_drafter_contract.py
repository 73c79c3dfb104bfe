"""What the loop may rely on in every drafter: positions in order, what a late draft leaves, a harmless close."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from engine.bench.controller import SpoiltDrafter
from engine.distributed.remote_drafter import RemoteDrafter
from engine.drafters.draft_model import DraftModel
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.drafters.several import several
from engine.errors import ObservationError
from engine.loading import load_backend
from engine.protocols import Drafter
from engine.structure.layout import CacheLayout

pytest.importorskip("grpc", reason="remote drafters are asked over gRPC")
torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from engine.distributed.rpc.client import DrafterChannel  # noqa: E402
from engine.distributed.rpc.in_thread import serving  # noqa: E402
from engine.distributed.rpc.methods import DFLASH, NGRAM  # noqa: E402
from engine.distributed.rpc.remote import remote_model  # noqa: E402
from engine.distributed.rpc.server import DrafterServer  # noqa: E402
from engine.distributed.served import serve_dflash, serve_ngram  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402

PROMPT = (9, 8, 7, 9, 8, 7, 9, 8, 7, 9, 8)
BONUS = 7
LOCAL = ("ngram", "spoilt", "draft model", "dflash", "several")
REMOTE = ("remote ngram", "remote dflash")


@dataclass
class Shown:
    """A drafter with a target's rows to show it."""

    open: Callable[[], Drafter]
    rows: Callable[[int, int], Any]

    def __post_init__(self) -> None:
        self.drafter = self.open()

    def show(self, start: int, end: int, at: int | None = None) -> None:
        """Show the prompt's positions [start, end) as those from ``at`` on."""
        self.drafter.observe(start if at is None else at, PROMPT[start:end], self.rows(start, end))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[Any, dict[str, Any]]]]:
    """Yield a backend's target and its drafters by kind, loaded and served when they are first asked for."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("contract")
    tiny_torch.write_target(root / "target", "qwen3")
    tiny_torch.write_dflash(root / "dflash")
    served = ExitStack()

    @cache
    def load(name: str) -> tuple[Any, dict[str, Any]]:
        backend = load_backend(name, device="cpu" if name == "torch" else None)
        target = backend.load_target(root / "target")
        dflash, small, ngram = backend.load_dflash(root / "dflash", target), DraftModel(target), NgramModel()
        both = several([dflash, small])
        offered = {NGRAM: serve_ngram(ngram), DFLASH: serve_dflash(backend, dflash, target.info, root / "target")}
        address = served.enter_context(serving(DrafterServer(offered)))
        remote = {}
        for service in offered:
            channel = DrafterChannel(address, service)
            served.callback(channel.close)
            remote[service] = remote_model(channel, backend, target, root / "target", patience_s=600.0)
        return target, {
            "ngram": ngram,
            "spoilt": ngram,
            "draft model": small,
            "dflash": dflash,
            "several": both,
            "remote ngram": remote[NGRAM],
            "remote dflash": remote[DFLASH],
        }

    with served:
        yield load


@pytest.fixture(params=[f"{backend}, {kind}" for backend in ("mlx", "torch") for kind in (*LOCAL, *REMOTE)])
def shown(request: pytest.FixtureRequest, models: Callable[[str], tuple[Any, dict[str, Any]]]) -> Shown:
    name, kind = request.param.split(", ")
    target, drafters = models(name)
    model = drafters[kind]
    sequence = target.open(model.capture, CacheLayout.NATIVE)
    forward = list(sequence.prefill(PROMPT, 512))[-1]
    features = sequence.committed(forward, len(PROMPT))

    def opened() -> Drafter:
        return SpoiltDrafter(model.open(), tiny_torch.VOCAB, 0) if kind == "spoilt" else model.open()

    return Shown(opened, lambda start, end: None if features is None else features[start:end])


def ids(draft: Any) -> tuple[int, ...]:
    return tuple(int(token) for token in draft.ids())


def whole_draft(shown: Shown, bonus: int, length: int) -> tuple[int, ...]:
    """Return what is drafted behind the prompt's first positions, by a drafter of its own.

    One that has answered gives the next draft up after twice as long, which a busy machine may need.
    """
    other = Shown(shown.open, shown.rows)
    other.show(0, length)
    return ids(other.drafter.ask(bonus, length, 3, None))


def test_tokens_after_a_gap_are_an_error_by_name_and_leave_the_drafter_as_it_was(shown: Shown) -> None:
    shown.show(0, 4)
    with pytest.raises(ObservationError, match=r"start at position 6; expected 4, a gap"):
        shown.show(6, 8)
    shown.show(4, len(PROMPT))
    assert shown.drafter.ask(BONUS, len(PROMPT), 3, None).count == 3


@pytest.mark.parametrize(("start", "end"), [(0, 4), (2, 6)], ids=["all again", "some again"])
def test_tokens_shown_again_are_an_error_too(shown: Shown, start: int, end: int) -> None:
    shown.show(0, 4)
    with pytest.raises(ObservationError, match=rf"start at position {start}; expected 4, a repeat"):
        shown.show(start, end)


def test_the_first_tokens_begin_at_position_zero(shown: Shown) -> None:
    with pytest.raises(ObservationError, match="expected 0"):
        shown.show(0, 4, at=1)


def test_what_is_drafted_does_not_depend_on_how_the_text_was_cut(shown: Shown) -> None:
    whole = Shown(shown.open, shown.rows)
    whole.show(0, len(PROMPT))
    for start, end in ((0, 1), (1, 6), (6, len(PROMPT))):
        shown.show(start, end)
    drafts = [ids(session.drafter.ask(BONUS, len(PROMPT), 3, None)) for session in (whole, shown)]
    assert drafts[0] == drafts[1]
    assert len(drafts[0]) == 3


def test_what_a_drafter_goes_back_over_leaves_no_trace(shown: Shown) -> None:
    straight = Shown(shown.open, shown.rows)
    straight.show(0, len(PROMPT))
    shown.show(0, 9)
    shown.drafter.ask(BONUS, 9, 3, None)
    assert shown.drafter.rewind(20) == 9
    assert shown.drafter.rewind(4) == 4
    with pytest.raises(ObservationError, match="expected 4"):
        shown.show(9, 10)
    shown.show(4, len(PROMPT))
    drafts = [ids(session.drafter.ask(BONUS, len(PROMPT), 3, None)) for session in (straight, shown)]
    assert drafts[0] == drafts[1]
    assert len(drafts[0]) == 3


def test_a_draft_is_there_at_once_or_under_way_until_it_is_ready(shown: Shown) -> None:
    shown.show(0, len(PROMPT))
    draft = shown.drafter.ask(BONUS, len(PROMPT), 3)
    if not isinstance(shown.drafter, RemoteDrafter):
        assert (draft.count, draft.skipped, draft.under_way) == (3, None, False)
        assert shown.drafter.ready(BONUS).count == 0
        return
    awaited = whole_draft(shown, BONUS, len(PROMPT))
    assert draft.under_way or draft.count == 3
    while (ready := shown.drafter.ready(BONUS)).under_way:
        time.sleep(0.01)
    assert ids(ready) == awaited
    assert (ready.count, ready.offset, ready.skipped) == (3, 0, None)


@pytest.mark.parametrize("shown", [f"{name}, {kind}" for name in ("mlx", "torch") for kind in REMOTE], indirect=True)
@pytest.mark.parametrize("right", [True, False])
def test_a_draft_that_comes_late_is_what_follows_the_tokens_committed_meanwhile(shown: Shown, right: bool) -> None:
    shown.show(0, len(PROMPT) - 1)
    last = PROMPT[-1]
    first, second, third = whole_draft(shown, last, len(PROMPT) - 1)
    shown.drafter.ask(last, len(PROMPT) - 1, 3)
    shown.show(len(PROMPT) - 1, len(PROMPT))
    newest = first if right else (first + 1) % tiny_torch.VOCAB
    while (left := shown.drafter.ready(newest)).under_way:
        time.sleep(0.01)
    assert (left.tokens, left.offset, left.right) == ((second, third) if right else (), 1, int(right))
    assert (left.came_s or 0.0) > 0.0


def test_a_drafter_may_be_closed_twice_and_still_be_read(shown: Shown) -> None:
    shown.show(0, len(PROMPT))
    shown.drafter.ask(BONUS, len(PROMPT), 3, None)
    forwards, size = shown.drafter.forwards, shown.drafter.measured_bytes()
    shown.drafter.close()
    shown.drafter.close()
    assert (shown.drafter.forwards, shown.drafter.measured_bytes()) == (forwards, size)


def test_no_drafter_keeps_no_position() -> None:
    drafter = NoDrafter()
    drafter.observe(3, (1, 2), None)
    assert drafter.ask(BONUS, 9, 3, None).skipped == "no drafter"
