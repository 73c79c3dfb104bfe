"""The requester's own machine, where namespaces are denied: host presets run behind Landlock, and say what it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.executor.sandbox.landlock import NOT_HELD
from tests.fakes.clone import Clone

ROOT = Path(__file__).resolve().parents[3]
DENIED = """
import os, sys
sys.path.insert(0, {root!r})
from tests.integration.setup.protections import refuse_when
refuse_when(["clone", "unshare"], 0, 0x10000000)  # CLONE_NEWUSER
os.execv(sys.executable, [sys.executable, "-m", "bridge.cli.mac.main", *sys.argv[1:]])
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="filters of system calls, as root"),
]


def mac(clone: Clone, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", DENIED.format(root=str(ROOT)), *words]
    return subprocess.run(
        command, cwd=clone.top, env=clone.env, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_host_preset_runs_behind_the_weaker_wall_and_says_so_and_code_of_a_request_is_refused(tmp_path) -> None:
    clone = Clone(tmp_path)
    clone.commit({"checks/test_quick.py": "def test_quick():\n    assert True\n"})
    try:
        host = mac(clone, "run", "mlx-env-probe", "--wait")
        code = mac(clone, "run", "pytest-path", "-p", "path=checks/test_quick.py", "--wait", "--json")
        own = mac(clone, "run", "pytest-path", "-p", "path=checks/test_quick.py", "--unsandboxed", "--wait", "--json")
    finally:
        clone.stop_runners()

    assert host.returncode == 0, host.stdout + host.stderr
    (line,) = (line for line in host.stdout.splitlines() if line.startswith("sandbox "))
    assert line == f"sandbox     landlock, as user 65533; {NOT_HELD}"
    assert "NO SANDBOX" not in host.stdout
    refused = json.loads(code.stdout)
    assert (code.returncode, refused["outcome"]["executor_ok"]) == (3, False), code.stdout
    assert "this run needs a sandbox and the host has none" in refused["outcome"]["message"]
    assert "--unsandboxed" in refused["outcome"]["remedy"]
    document = json.loads(own.stdout)
    assert (own.returncode, document["where"]["sandbox"]) == (0, "none"), own.stdout
    assert document["where"]["no_sandbox_because"] == "asked for with --unsandboxed"
