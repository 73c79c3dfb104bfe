"""The host's own target, which continues texts for the asker of servers, on whatever library the host has."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

WITHOUT_MLX = """
import sys
sys.modules["mlx"] = None
from engine.cli.main import main
sys.exit(main(["eval", "continue", "--target", "kakeya-tiny-gemma4"]))
"""


@pytest.mark.ci
def test_a_host_without_mlx_continues_texts_with_torch() -> None:
    """As one that was set up for an NVIDIA card is."""
    pytest.importorskip("torch", reason="the backend torch is not installed")
    line = json.dumps({"text": "class Point:\n", "tokens": 4, "seed": None})
    argv = [sys.executable, "-c", WITHOUT_MLX]
    done = subprocess.run(argv, input=f"{line}\n", capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"]
