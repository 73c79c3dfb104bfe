"""A process of `kakeya-engine` that computes with MLX takes no torch in, until something asks for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

ON_MLX = r"""
import sys
from engine.cli.main import main
words = ["generate", "class Point:", "--max-new", "3", "--depth", "0"]
sys.argv = ["kakeya-engine", *words]
assert main() == 0
print("\0", *(name for name in ("mlx_lm", "transformers", "torch") if sys.modules.get(name)), end="\0")
"""
THEN_ON_TORCH = r"""
assert main([*words, "--backend", "torch", "--device", "cpu"]) == 0
import transformers
print("\0", transformers.utils.is_torch_available(), type(sys.modules["torch"]).__name__, end="\0")
"""


def said_by(program: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return [part.strip() for part in ran.stdout.split("\0")]


@pytest.mark.ci
def test_a_process_on_mlx_starts_without_torch() -> None:
    pytest.importorskip("torch", reason="where torch is not installed there is nothing to leave out")
    _, loaded, _ = said_by(ON_MLX)
    assert loaded == "mlx_lm transformers"


@pytest.mark.slow
def test_torch_is_taken_in_where_the_same_process_asks_for_it() -> None:
    pytest.importorskip("torch")
    answer, loaded, again, available, _ = said_by(ON_MLX + THEN_ON_TORCH)
    assert loaded == "mlx_lm transformers"
    assert again == answer
    assert available == "True module"
