"""What the bridge sees of an NVIDIA card from outside, while torch works on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the torch backend is not installed")

from bridge.executor.observe.accelerators.cards import find_cards  # noqa: E402
from bridge.executor.observe.accelerators.find import find_meter  # noqa: E402
from bridge.executor.observe.accelerators.nvidia import NvidiaMeter  # noqa: E402
from bridge.executor.observe.host import describe  # noqa: E402

pytestmark = pytest.mark.cuda
PATIENCE_S = 30.0


@pytest.fixture(scope="module", autouse=True)
def card(missing: Callable[[str, str], None]) -> None:
    if not torch.cuda.is_available():
        missing("cuda", "no NVIDIA device")


def test_the_host_names_its_cards_and_their_driver() -> None:
    described, cards = describe(), find_cards()
    assert cards is not None
    assert len(described.devices) == len(cards) == torch.cuda.device_count()
    assert described.drivers["cuda"].count(".") == 1
    assert all(card.uuid.startswith("GPU-") for card in cards)


def test_a_card_that_works_is_seen_busy_and_says_its_state() -> None:
    meter = find_meter()
    assert isinstance(meter, NvidiaMeter), meter
    large = torch.rand(4096, 4096, device="cuda")
    share, end_s = 0.0, time.monotonic() + PATIENCE_S
    while share < 0.5 and time.monotonic() < end_s:
        for _ in range(200):
            large = large @ large / 4096
        torch.cuda.synchronize()
        share = meter.read({os.getpid()}).share or 0.0
    assert share >= 0.5
    assert (meter.read({os.getpid()}).memory_bytes or 0) > large.nbytes
    assert meter.conditions()


def test_what_is_free_is_less_than_what_there_is() -> None:
    from engine.backends.torch.backend import TorchBackend

    backend, gib = TorchBackend("cuda"), 1 << 30
    room = backend.memory()
    assert room is not None
    assert 0 < room.usable_bytes <= room.total_bytes
    allocation = torch.empty(2 * gib, dtype=torch.uint8, device="cuda")
    while_held = backend.memory()
    del allocation
    freed = backend.memory()
    assert while_held is not None
    assert freed is not None
    assert while_held.usable_bytes <= room.usable_bytes - gib
    # Freed blocks stay with torch, which gives them to the next tensor.
    assert freed.usable_bytes >= while_held.usable_bytes + 2 * gib
