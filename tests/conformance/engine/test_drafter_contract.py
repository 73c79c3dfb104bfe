"""What the loop may rely on in every drafter: positions in order, a draft that can be taken twice, a harmless close."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from engine.benchmarks.controller import SpoiltDrafter
from engine.drafters.draft_model import DraftModel
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.drafters.several import several
from engine.errors import ObservationError
from engine.loading import load_backend
from engine.protocols import Drafter
from engine.structure.layout import CacheLayout

torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from tests.fakes import tiny_torch  # noqa: E402

PROMPT = (9, 8, 7, 9, 8, 7, 9, 8, 7, 9, 8)
BONUS = 7
KINDS = ("ngram", "spoilt", "draft model", "dflash", "several")


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
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, dict[str, Any]]]:
    """Return a backend's target and its drafters by kind, loaded when they are first asked for."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("contract")
    tiny_torch.write_target(root / "target", "qwen3")
    tiny_torch.write_dflash(root / "dflash")

    @cache
    def load(name: str) -> tuple[Any, dict[str, Any]]:
        backend = load_backend(name, device="cpu" if name == "torch" else None)
        target = backend.load_target(root / "target")
        dflash, small, ngram = backend.load_dflash(root / "dflash", target), DraftModel(target), NgramModel()
        both = several([dflash, small])
        return target, {"ngram": ngram, "spoilt": ngram, "draft model": small, "dflash": dflash, "several": both}

    return load


@pytest.fixture(params=[f"{backend}, {kind}" for backend in ("mlx", "torch") for kind in KINDS])
def shown(request: pytest.FixtureRequest, models: Callable[[str], tuple[Any, dict[str, Any]]]) -> Shown:
    name, kind = request.param.split(", ")
    target, known = models(name)
    model = known[kind]
    sequence = target.open(model.capture, CacheLayout.NATIVE)
    forward = list(sequence.prefill(PROMPT, 512))[-1]
    features = sequence.committed(forward, len(PROMPT))

    def opened() -> Drafter:
        return SpoiltDrafter(model.open(), tiny_torch.VOCAB, 0) if kind == "spoilt" else model.open()

    return Shown(opened, lambda start, end: None if features is None else features[start:end])


def ids(draft: Any) -> tuple[int, ...]:
    return tuple(int(token) for token in draft.ids())


def test_tokens_after_a_gap_are_an_error_by_name_and_leave_the_drafter_as_it_was(shown: Shown) -> None:
    shown.show(0, 4)
    with pytest.raises(ObservationError, match=r"start at position 6; expected 4, a gap"):
        shown.show(6, 8)
    shown.show(4, len(PROMPT))
    assert shown.drafter.ask(BONUS, len(PROMPT), 3).take().count == 3


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
    found = [ids(one.drafter.ask(BONUS, len(PROMPT), 3).take()) for one in (whole, shown)]
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_what_a_drafter_goes_back_over_leaves_no_trace(shown: Shown) -> None:
    straight = Shown(shown.open, shown.rows)
    straight.show(0, len(PROMPT))
    shown.show(0, 9)
    shown.drafter.ask(BONUS, 9, 3).take()
    assert shown.drafter.rewind(20) == 9
    assert shown.drafter.rewind(4) == 4
    with pytest.raises(ObservationError, match="expected 4"):
        shown.show(9, 10)
    shown.show(4, len(PROMPT))
    found = [ids(one.drafter.ask(BONUS, len(PROMPT), 3).take()) for one in (straight, shown)]
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_a_local_draft_is_there_at_once_and_may_be_taken_twice(shown: Shown) -> None:
    shown.show(0, len(PROMPT))
    pending = shown.drafter.ask(BONUS, len(PROMPT), 3)
    at_once, later = pending.take(0.0), pending.take()
    assert (at_once.count, at_once.skipped) == (3, None)
    assert ids(at_once) == ids(later)


def test_a_drafter_may_be_closed_twice_and_still_be_read(shown: Shown) -> None:
    shown.show(0, len(PROMPT))
    shown.drafter.ask(BONUS, len(PROMPT), 3).take()
    forwards, held = shown.drafter.forwards, shown.drafter.measured_bytes()
    shown.drafter.close()
    shown.drafter.close()
    assert (shown.drafter.forwards, shown.drafter.measured_bytes()) == (forwards, held)


def test_no_drafter_keeps_no_position() -> None:
    drafter = NoDrafter()
    drafter.observe(3, (1, 2), None)
    assert drafter.ask(BONUS, 9, 3).take().skipped == "no drafter"
