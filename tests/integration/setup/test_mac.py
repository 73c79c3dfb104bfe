"""The set-up of a Mac by its dry run."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.setup.machine import SETUP

GOLDEN = Path(__file__).parent / "golden"
MAC = {
    "mac-dry-run.txt": ["--models", "/Users/Shared/kakeya-models"],
    "mac-actions-dry-run.txt": [
        *("--create-bus", "--ssh-from", "100.64.0.0/10", "--labels", "mlx,quiet"),
        *("--actions-url", "https://example.org/o/r", "--actions-token-file", "-"),
    ],
}


@pytest.mark.parametrize("golden", MAC)
def test_the_mac_dry_run_is_the_recorded_one(golden: str, tmp_path) -> None:
    """`UPDATE_GOLDEN=1 pytest` writes it anew; files are shown as they would be written."""
    archive, key = tmp_path / "runner.tar.gz", tmp_path / "agent.pub"
    archive.write_bytes(b"archive")
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgentKey agent@example.org\n")
    command = ["bash", str(SETUP / "setup_mac.sh"), "--dry-run", "--bus", "https://example.org/owner/bus.git"]
    command += ["--name", "mac-mini", "--python", sys.executable, "--root", str(tmp_path), *MAC[golden]]
    if "--actions-url" in command:
        command += ["--actions-archive", str(archive), "--ssh-key", str(key)]
        command += ["--actions-sha256", hashlib.sha256(b"archive").hexdigest()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    interpreter = str(Path(sys.executable).resolve())
    own = re.compile(r"(ok|would) +(git|sudo)")  # what this machine has of a Mac's tools
    lines = [
        line.replace(interpreter, "PYTHON").replace(str(SETUP.parent), "CLONE").replace(str(tmp_path), "")
        for line in done.stdout.splitlines()
        if not own.match(line)
    ]
    text = re.sub(r"^\d+ change", "N change", "\n".join(lines), flags=re.MULTILINE) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / golden).write_text(text)
    assert text == (GOLDEN / golden).read_text()


def test_a_user_for_jobs_is_refused_with_the_reason() -> None:
    command = ["bash", str(SETUP / "setup_mac.sh"), "--dry-run", "--bus", "https://example.org/owner/bus.git"]
    done = subprocess.run([*command, "--job-user"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --job-user is for Linux: a run here has the runner's user")
    assert "next: leave --job-user out" in done.stderr
