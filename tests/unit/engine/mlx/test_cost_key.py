"""A table of step costs says which processor it was measured on: two chips of one architecture have unlike costs."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="mlx is not installed", exc_type=ImportError)

from engine.loading import load_backend, open_engine
from engine.options import cost_key


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_a_table_names_the_processor_and_how_many_there_are() -> None:
    engine = open_engine(load_backend("mlx"), "kakeya-tiny-gemma4", None)
    names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = names[0].strip() if names else platform.machine()
    assert cost_key(engine).machine == f"Linux {name}, {os.cpu_count()} processors, cpu"
