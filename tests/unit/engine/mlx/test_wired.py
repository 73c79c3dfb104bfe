"""Keeping weights wired says nothing where an answer stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="mlx is not installed", exc_type=ImportError)

from engine.backends.mlx.wired import WiredWeights


@contextmanager
def warning(module: Any) -> Iterator[None]:
    """Warn as mlx-lm does of a model that takes more than nine tenths of what Metal recommends."""
    print(f"[WARNING] Generating with a model that requires {module} MB")
    yield


def test_a_warning_of_a_large_model_is_no_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with WiredWeights(warning).holding(17000):
        print("the answer")
    captured = capsys.readouterr()
    assert captured.out == "the answer\n"
    assert captured.err == "[WARNING] Generating with a model that requires 17000 MB\n"
