"""The torch backend on an NVIDIA device: the same tokens as on the CPU in fp32, and a clock that waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch backend is not installed")

from engine.decoding.autoregressive import autoregressive  # noqa: E402
from engine.decoding.depth import FixedDepth  # noqa: E402
from engine.decoding.speculative import Parts, speculative  # noqa: E402
from engine.stopping import Stopping  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402

pytestmark = pytest.mark.cuda
PROMPT = tuple(range(5, 60))


@pytest.fixture(scope="module", autouse=True)
def card(missing: Callable[[str, str], None]) -> None:
    if not torch.cuda.is_available():
        missing("cuda", "no NVIDIA device")


@pytest.fixture(scope="module")
def sides(card: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    from engine.backends.torch.backend import TorchBackend

    torch.backends.cuda.matmul.allow_tf32 = False
    root = tmp_path_factory.mktemp("cuda")
    for kind in tiny_torch.CONFIGS:
        tiny_torch.write_target(root / kind, kind)
    tiny_torch.write_dflash(root / "dflash")
    return root, {name: TorchBackend(name, "float32") for name in ("cpu", "cuda")}


def decoded(backend: Any, root: Path, kind: str, depth: int | None) -> list[int]:
    target = backend.load_target(root / kind)
    if depth is None:
        steps = autoregressive(target.open((), CacheLayout.FULL), backend.greedy(target), PROMPT, Stopping(40))
    else:
        model = backend.load_dflash(root / "dflash", target)
        sequence = target.open(model.capture, CacheLayout.NATIVE)
        parts = Parts(sequence, model.open(), backend.greedy(target), FixedDepth(depth), backend.clock)
        steps = speculative(parts, PROMPT, Stopping(40), chunk=16)
    return [token for step in steps for token in step.tokens]


@pytest.mark.parametrize("kind", list(tiny_torch.CONFIGS))
def test_cuda_decodes_as_the_cpu_does_with_and_without_drafts(sides: Any, kind: str) -> None:
    root, backends = sides
    expected = decoded(backends["cpu"], root, kind, None)
    assert [decoded(backends["cuda"], root, kind, depth) for depth in (None, 0, 3, 7)] == [expected] * 4


@pytest.mark.parametrize("text", ["affine8/8", "affine4/8", "sink4+window16"])
@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
def test_drafts_change_no_token_of_a_lossy_cache_on_cuda(sides: Any, kind: str, text: str) -> None:
    root, backends = sides
    backend, layout = backends["cuda"], CacheLayout.parse(text)
    target = backend.load_target(root / kind)
    plain = autoregressive(target.open((), layout), backend.greedy(target), PROMPT, Stopping(40))
    expected = [token for step in plain for token in step.tokens]
    model = backend.load_dflash(root / "dflash", target)
    for depth in (0, 3, 7):
        sequence = target.open(model.capture, layout)
        parts = Parts(sequence, model.open(), backend.greedy(target), FixedDepth(depth), backend.clock)
        steps = speculative(parts, PROMPT, Stopping(40), chunk=16)
        assert [token for step in steps for token in step.tokens] == expected


def test_the_device_is_named_counted_and_waited_for(sides: Any) -> None:
    root, backends = sides
    backend = backends["cuda"]
    assert backend.device.startswith("cuda:")
    target = backend.load_target(root / "qwen3")
    target.warm_up(8)
    assert backend.allocator_active_bytes() > 0
    assert backend.blas() is None
    large = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        large = large @ large / 64.0
    queued_ns = backend.clock.host_ns()
    assert backend.clock.now_ns() >= queued_ns
    assert torch.cuda.current_stream().query()


def test_bfloat16_weights_stay_bfloat16(sides: Any) -> None:
    from engine.backends.torch.backend import TorchBackend

    root, _ = sides
    target = TorchBackend("cuda", "bfloat16").load_target(root / "gemma4")
    assert target.info.dtype == "bfloat16"
