from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the torch backend is not installed")
torch.set_num_threads(1)

from engine.backends.torch.backend import TorchBackend  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402
from tests.fakes.tiny_torch import CONFIGS  # noqa: E402


@pytest.fixture(scope="session")
def backend() -> TorchBackend:
    return TorchBackend(device="cpu")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random checkpoints of every family, and drafters for them."""
    root = tmp_path_factory.mktemp("models")
    for kind in tiny_torch.CONFIGS:
        tiny_torch.write_target(root / kind, kind)
    tiny_torch.write_dflash(root / "dflash")
    return root


@pytest.fixture(scope="session")
def targets(backend: TorchBackend, folders: Path) -> dict[str, object]:
    return {kind: backend.load_target(folders / kind) for kind in tiny_torch.CONFIGS}


@pytest.fixture(scope="module")
def answers(backend: Any, folders: Any) -> Callable[[str, tuple[int, ...]], list[int]]:
    """The oracle on targets that record nothing, each prompt decoded once."""
    from tests.support.decoding import plain

    loaded: dict[str, Any] = {}
    tokens_by_prompt: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    def answer(kind: str, prompt: tuple[int, ...]) -> list[int]:
        if kind not in loaded:
            loaded[kind] = backend.load_target(folders / kind)
        if (kind, prompt) not in tokens_by_prompt:
            tokens_by_prompt[kind, prompt] = list(plain(backend, loaded[kind], prompt))
        return tokens_by_prompt[kind, prompt]

    return answer


@pytest.fixture(scope="module")
def graphed(backend: Any, folders: Any) -> dict[str, Any]:
    """A target of each kind that replays its forwards."""
    from tests.integration.engine_torch.replaying import slots

    loaded = {kind: backend.load_target(folders / kind) for kind in CONFIGS}
    for target in loaded.values():
        target.slots = slots()
    return loaded
