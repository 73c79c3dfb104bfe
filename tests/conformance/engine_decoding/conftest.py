from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.loading import load_backend
from tests.fakes import tiny_torch
from tests.support.decoding import BUDGET, plain


@dataclass
class Side:
    """One backend with random targets of every family and DFlash drafters for them, read from the same folders.

    Attributes:
        answer: returns what `plain` decodes of a prompt on a target, decoded once.
    """

    backend: Any
    folders: Path
    targets: dict[str, Any]
    answer: Callable[..., list[int]] = field(init=False)

    def __post_init__(self) -> None:
        """Remember answers by target, prompt and budget."""

        @cache
        def answer(kind: str, prompt: tuple[int, ...], budget: int = BUDGET) -> tuple[int, ...]:
            return plain(self.backend, self.targets[kind], prompt, budget)

        self.answer = lambda *question: list(answer(*question))

    def dflash(self, kind: str, name: str = "dflash") -> Any:
        """Return one of the random drafters, for a target."""
        return self.backend.load_dflash(self.folders / name, self.targets[kind])


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch", reason="it writes the random checkpoints")
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    for kind in tiny_torch.CONFIGS:
        tiny_torch.write_target(root / kind, kind)
    tiny_torch.write_dflash(root / "dflash")
    tiny_torch.write_dflash(
        root / "dflash-sliding",
        num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=8,
        use_sliding_window=True,
    )
    return root


@pytest.fixture(scope="session", params=["torch", "mlx"])
def side(request: pytest.FixtureRequest, folders: Path) -> Side:
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
        backend = load_backend("mlx")
    else:
        backend = load_backend("torch", device="cpu")
    return Side(backend, folders, {kind: backend.load_target(folders / kind) for kind in tiny_torch.CONFIGS})
