"""A keeper whose plan comes late waits for it, whatever mode its pipe is in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bridge.executor.processes.subreaper


@pytest.mark.parametrize("blocking", [True, False])
def test_a_keeper_waits_for_its_plan(blocking: bool) -> None:
    control, orders = os.pipe()
    answers, status = os.pipe()
    os.set_blocking(control, blocking)
    script = str(Path(bridge.executor.processes.subreaper.__file__))
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", script, str(control), str(status)], pass_fds=(control, status)
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            keeper.wait(timeout=1.0)
        os.close(orders)  # the runner is gone before it gave a plan: there is nothing to do
        assert keeper.wait(timeout=240) == 0
    finally:
        keeper.kill()
        for descriptor in (control, answers, status):
            os.close(descriptor)
