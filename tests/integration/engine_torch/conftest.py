from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the torch backend is not installed")
torch.set_num_threads(1)

from engine.backends.torch.backend import TorchBackend  # noqa: E402
from tests.fakes import tiny_torch  # noqa: E402


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
