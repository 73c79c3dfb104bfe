"""Recorded forwards on an NVIDIA device: real CUDA graphs, the same tokens, every fallback said.

Nothing here has a meaning without a card; `--require cuda` turns the skip into a failure where there should be one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch backend is not installed")

from engine.backends.torch.graphs.recording import CudaGraphs, NotRecordableError  # noqa: E402
from engine.decoding.autoregressive import autoregressive  # noqa: E402
from engine.decoding.depth import FixedDepth  # noqa: E402
from engine.decoding.speculative import Parts, speculative  # noqa: E402
from engine.stopping import Stopping  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from engine.types import Draft  # noqa: E402
from tests.fakes import tiny_families, tiny_torch  # noqa: E402
from tests.fakes.scripted_drafter import ScriptedModel  # noqa: E402
from tests.support.decoding import tokens_of  # noqa: E402

pytestmark = pytest.mark.cuda
BUDGET = 40
LENGTHS = (1, tiny_torch.WINDOW, tiny_torch.WINDOW + 3, 61)
BUSY = "another sequence holds the static caches"


@pytest.fixture(scope="module", autouse=True)
def card(missing: Callable[[str, str], None]) -> None:
    if not torch.cuda.is_available():
        missing("cuda", "no NVIDIA device")
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(scope="module")
def folders(card: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("graphs")
    for kind in tiny_torch.CONFIGS:
        tiny_torch.write_target(root / kind, kind)
    tiny_torch.write_dflash(root / "dflash")
    return root


@pytest.fixture(scope="module")
def backends(folders: Path) -> dict[str, Any]:
    from engine.backends.torch.backend import TorchBackend

    return {mode: TorchBackend("cuda", "float32", mode) for mode in ("on", "off")}


@pytest.fixture(scope="module")
def targets(backends: dict[str, Any], folders: Path) -> dict[str, dict[str, Any]]:
    return {
        mode: {kind: backend.load_target(folders / kind) for kind in tiny_torch.CONFIGS}
        for mode, backend in backends.items()
    }


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(5, tiny_torch.VOCAB, (length,), generator=generator).tolist())


def oracle(backends: Any, targets: Any, kind: str, prompt: tuple[int, ...]) -> list[int]:
    target = targets["off"][kind]
    sequence = target.open((), CacheLayout.FULL)
    return tokens_of(autoregressive(sequence, backends["off"].greedy(target), prompt, Stopping(BUDGET)))


def decoded(
    backends: Any, target: Any, model: Any, prompt: tuple[int, ...], depth: int
) -> tuple[list[int], dict[str, int]]:
    backend = backends["on"]
    sequence = target.open(model.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, model.open(), backend.greedy(target), FixedDepth(depth), backend.clock)
    return tokens_of(speculative(parts, prompt, Stopping(BUDGET), chunk=16)), sequence.fallbacks()


def refusals(target: Any, kind: str) -> set[str]:
    """Why a target may fall back: only a mixture of experts may need the host, and it must then have said so."""
    return {target.slots.refused} if kind == "gemma4-moe" and target.slots.refused else set()


@pytest.mark.parametrize("kind", list(tiny_torch.CONFIGS))
def test_graphs_decode_what_plain_forwards_decode_at_every_depth(
    backends: Any, targets: Any, folders: Path, kind: str
) -> None:
    target = targets["on"][kind]
    model = backends["on"].load_dflash(folders / "dflash", target)
    for length in LENGTHS:
        expected = oracle(backends, targets, kind, prompt_of(length))
        for depth in range(8):
            tokens, reasons = decoded(backends, target, model, prompt_of(length), depth)
            assert tokens == expected, f"prompt of {length}, depth {depth}"
            assert set(reasons) <= refusals(target, kind)


@pytest.mark.parametrize("kind", list(tiny_torch.CONFIGS))
def test_a_rejection_at_every_row_changes_no_token(backends: Any, targets: Any, kind: str) -> None:
    target, prompt = targets["on"][kind], prompt_of(tiny_torch.WINDOW + 3)
    answer = tuple(oracle(backends, targets, kind, prompt))
    for place in range(8):
        model = ScriptedModel(answer, len(prompt), tiny_torch.VOCAB, lambda step, index, at=place: index >= at, (0, 3))
        tokens, reasons = decoded(backends, target, model, prompt, 7)
        assert tokens == list(answer)
        assert set(reasons) <= refusals(target, kind)


def test_the_states_of_a_hybrid_are_replayed_and_taken_back_at_every_row(backends: Any, tmp_path: Path) -> None:
    folder = tiny_families.write_family(tmp_path, "qwen3_5_text")
    targets = {mode: {"hybrid": backend.load_target(folder)} for mode, backend in backends.items()}
    target, prompt = targets["on"]["hybrid"], prompt_of(30)
    answer = tuple(oracle(backends, targets, "hybrid", prompt))
    for place in range(8):
        model = ScriptedModel(answer, len(prompt), tiny_families.VOCAB, lambda step, index, at=place: index >= at)
        tokens, reasons = decoded(backends, target, model, prompt, 7)
        assert tokens == list(answer)
        # Without flash-linear-attention its reference is recorded, and named.
        assert all(reason.startswith("recurrent layers run transformers' reference") for reason in reasons)


def test_a_replay_allocates_nothing_and_what_it_returned_stays(targets: Any) -> None:
    sequence = targets["on"]["gemma4"].open((0, 2), CacheLayout.NATIVE)
    for _ in sequence.prefill(prompt_of(20), 512):
        pass
    block = Draft(tokens=(6, 7), count=2)
    first = sequence.forward_block(5, block)
    sequence.crop(21)
    logits, features = first.logits.clone(), first.features.clone()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for bonus in range(8, 28):
        sequence.forward_block(bonus, block)
        sequence.crop(21)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    assert torch.equal(first.logits, logits)
    assert torch.equal(first.features, features)


def test_a_slot_has_room_for_the_whole_answer(backends: Any, targets: Any, folders: Path) -> None:
    from functools import partial

    from engine.backends.torch.graphs.slots import Slots

    target = backends["on"].load_target(folders / "qwen3")
    target.slots = Slots(partial(CudaGraphs, target.device), 8, smallest=32, room=0)
    model = backends["on"].load_dflash(folders / "dflash", target)
    tokens, reasons = decoded(backends, target, model, prompt_of(15), 3)
    assert tokens == oracle(backends, targets, "qwen3", prompt_of(15))
    assert reasons == {}


def test_threads_decode_as_they_do_alone(backends: Any, targets: Any, folders: Path) -> None:
    work = [(kind, seed) for kind in ("gemma4", "qwen3") for seed in range(3)]
    expected = {(kind, seed): oracle(backends, targets, kind, prompt_of(40, seed)) for kind, seed in work}
    results: dict[tuple[str, int], tuple[list[int], dict[str, int]]] = {}

    def decode(kind: str, seed: int) -> None:
        target = targets["on"][kind]
        model = backends["on"].load_dflash(folders / "dflash", target)
        results[kind, seed] = decoded(backends, target, model, prompt_of(40, seed), 5)

    threads = [threading.Thread(target=decode, args=item) for item in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key: tokens for key, (tokens, _) in results.items()} == expected
    assert {reason for _, reasons in results.values() for reason in reasons} <= {BUSY}


def test_a_capture_that_cuda_refuses_leaves_the_device_usable(backends: Any, targets: Any, folders: Path) -> None:
    device = torch.device("cuda")
    values = torch.arange(4.0, device=device)

    def reads_late() -> tuple[Any, ...]:
        # The first runs are sound; the host reads only while the capture is under way.
        if torch.cuda.is_current_stream_capturing():
            values.sum().item()
        return (values * 2,)

    with torch.inference_mode(), pytest.raises(NotRecordableError):
        CudaGraphs(device).record(reads_late)
    with torch.inference_mode(), pytest.raises(NotRecordableError, match="nonzero needs the host"):
        CudaGraphs(device).record(lambda: (values.nonzero(),))
    assert not torch.cuda.is_current_stream_capturing()
    torch.cuda.empty_cache()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    with torch.inference_mode():
        replay = CudaGraphs(device).record(lambda: (values * 2,))
        values.fill_(3)
        assert replay()[0].tolist() == [6.0] * 4
    model = backends["on"].load_dflash(folders / "dflash", targets["on"]["qwen3"])
    tokens, _ = decoded(backends, targets["on"]["qwen3"], model, prompt_of(20), 3)
    assert tokens == oracle(backends, targets, "qwen3", prompt_of(20))


def test_a_mixture_of_experts_in_bfloat16_is_recorded_or_says_why_not() -> None:
    from engine.backends.torch.backend import TorchBackend

    backend = TorchBackend("cuda", "bfloat16", "on")
    target = backend.random_target("gemma4-moe-small")
    sequence = target.open((), CacheLayout.NATIVE)
    *_, last = sequence.prefill(tuple(range(5, 25)), 512)
    bonus = backend.greedy(target).first(last).bonus
    assert len(list(sequence.decode_ahead(bonus, 8))) == 8
    reasons = sequence.fallbacks()
    assert reasons == ({target.slots.refused: 8} if target.slots.refused else {})
