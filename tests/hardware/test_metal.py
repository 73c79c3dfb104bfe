"""The MLX backend on an Apple GPU, and what the bridge sees of it from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from bridge.executor.observe.accelerators.apple import AppleMeter  # noqa: E402
from bridge.executor.observe.accelerators.find import find_meter  # noqa: E402
from bridge.executor.observe.host import describe  # noqa: E402

pytestmark = pytest.mark.metal


@pytest.fixture(scope="module", autouse=True)
def gpu(missing: Callable[[str, str], None]) -> None:
    if not mx.metal.is_available():
        missing("metal", "no Apple GPU")


def work() -> None:
    large = mx.random.uniform(shape=(2048, 2048))
    for _ in range(200):
        large = (large @ large) / 2048
    mx.eval(large)


def test_the_host_names_the_gpu() -> None:
    assert [device.partition(" ")[0] for device in describe().devices] == ["metal:0"]


def test_the_registry_tells_the_time_of_our_own_process() -> None:
    meter = find_meter()
    assert isinstance(meter, AppleMeter), meter
    work()
    before = meter.read({os.getpid()})
    work()
    after = meter.read({os.getpid()})
    assert before.own_s is not None
    assert after.own_s is not None
    assert after.own_s > before.own_s
    assert after.share is not None


def test_drafts_change_no_token_and_the_device_says_what_it_has_room_for() -> None:
    from engine.backends.mlx.backend import MlxBackend
    from engine.checkpoint import ASSETS
    from engine.decoding.autoregressive import autoregressive
    from engine.decoding.depth import FixedDepth
    from engine.decoding.speculative import Parts, speculative
    from engine.stopping import Stopping
    from engine.structure.layout import CacheLayout

    backend = MlxBackend("float32")
    room = backend.memory()
    assert room is not None
    assert 0 < room.usable_bytes <= room.total_bytes
    folder = Path(ASSETS) / "kakeya-tiny-gemma4"
    target = backend.load_target(folder)
    model = backend.load_dflash(Path(f"{folder}-dflash"), target)
    prompt = tuple(range(5, 40))
    plain = autoregressive(target.open((), CacheLayout.FULL), backend.greedy(target), prompt, Stopping(40))
    expected = [token for step in plain for token in step.tokens]
    for depth in (0, 3, 7):
        sequence = target.open(model.capture, CacheLayout.NATIVE)
        parts = Parts(sequence, model.open(), backend.greedy(target), FixedDepth(depth), backend.clock)
        steps = speculative(parts, prompt, Stopping(40), chunk=16)
        assert [token for step in steps for token in step.tokens] == expected
