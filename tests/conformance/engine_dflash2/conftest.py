from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine.checkpoint import ASSETS
from engine.loading import load_backend


@dataclass(frozen=True)
class Side:
    """One backend with the packaged targets, numpy arrays at the edge."""

    backend: Any
    targets: dict[str, Any]
    array: Callable[[np.ndarray], Any]

    def hidden(self, drafter: Any, bonus: int, position: int, count: int) -> np.ndarray:
        """Return the hidden states of one pass over ``[bonus, mask * count]``."""
        if self.backend.name == "torch":
            return np.asarray(drafter.hidden_rows(bonus, position, count))
        ids = self.array(np.array([bonus] + [drafter.model.config.mask_token_id] * count, np.int32))
        return np.array(drafter.model.hidden_rows(ids, position, drafter.shown()))

    def logits(self, model: Any, hidden: np.ndarray) -> np.ndarray:
        return np.asarray(model.logits(self.array(hidden)))


@pytest.fixture(scope="session", params=["torch", "mlx"])
def side(request: pytest.FixtureRequest) -> Side:
    if request.param == "torch":
        torch = pytest.importorskip("torch", reason="the torch backend is not installed")
        torch.set_num_threads(1)
        array: Callable[[np.ndarray], Any] = torch.from_numpy
        backend = load_backend("torch", device="cpu")
    else:
        array = pytest.importorskip("mlx.core", reason="the MLX backend is not installed").array
        backend = load_backend("mlx")
    names = ("kakeya-tiny-gemma4", "kakeya-tiny-qwen3")
    return Side(backend, {name: backend.load_target(ASSETS / name) for name in names}, array)


@pytest.fixture(scope="session")
def tables() -> dict[str, np.ndarray]:
    """The packaged targets' embedding tables, which are their heads too."""
    from safetensors.torch import load_file  # numpy has no bfloat16

    return {
        name: load_file(ASSETS / name / "model.safetensors")["model.embed_tokens.weight"].float().numpy()
        for name in ("kakeya-tiny-gemma4", "kakeya-tiny-qwen3")
    }
