"""One random checkpoint of every family, loaded by either backend when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from engine.loading import load_backend

torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from tests.fakes import tiny_families, tiny_torch  # noqa: E402

Loaded = tuple[Any, Any]


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Loaded]:
    """Return a backend and its target for names of a backend and a family."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("families")

    @cache
    def folder(kind: str) -> Any:
        return tiny_families.write_family(root / kind, kind)

    @cache
    def backend_of(name: str) -> Any:
        return load_backend(name, device="cpu" if name == "torch" else None)

    @cache
    def load(name: str, kind: str) -> Loaded:
        backend = backend_of(name)
        return backend, backend.load_target(folder(kind))

    return load


@pytest.fixture(scope="session")
def dflash_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a random DFlash drafter that fits every family."""
    return tiny_torch.write_dflash(tmp_path_factory.mktemp("drafter"), dflash_config={"target_layer_ids": [0, 1, 3]})
