"""What a reader opens to follow one command does not grow unnoticed (docs/adr/0080-reading-one-command.md)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.command_life import followed

MODULES, LINES = 24, 1650


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="counted on Linux")
def test_one_command_s_life_is_read_in_so_many_modules_and_lines(need_sandbox):
    need_sandbox("other_user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        lines = followed(Path(name))

    assert {"command/supervise.py", "processes/tree.py", "command/logs.py"} <= set(lines)
    assert (len(lines) <= MODULES, sum(lines.values()) <= LINES) == (True, True), lines
