from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from engine.backends.mlx.backend import MlxBackend
from tests.fakes import tiny_mlx


@pytest.fixture(scope="session")
def backend() -> MlxBackend:
    return MlxBackend()


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random checkpoints of every family and format, and drafters for them."""
    root = tmp_path_factory.mktemp("models")
    for kind in tiny_mlx.CONFIGS:
        tiny_mlx.write_target(root / kind, kind)
    tiny_mlx.write_target(root / "wrapped", "gemma4", wrapped=True)
    tiny_mlx.write_target(root / "4bit", "gemma4-moe", bits=4, wrapped=True)
    tiny_mlx.write_dflash(root / "dflash")
    tiny_mlx.write_dflash(
        root / "dflash-sliding",
        layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=8,
        use_sliding_window=True,
    )
    return root


@pytest.fixture(scope="session")
def targets(backend: MlxBackend, folders: Path) -> dict[str, object]:
    names = [*tiny_mlx.CONFIGS, "wrapped", "4bit"]
    return {name: backend.load_target(folders / name) for name in names}
