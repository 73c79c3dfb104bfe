"""A bound on what git may write meets a bound that is in force already: the lower of both holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.system.gitrepository import BareRepository

MIB = 1024 * 1024
STORE = """
import sys
from pathlib import Path
from bridge.system.gitrepository import BareRepository
repository = BareRepository(Path(sys.argv[1]))
small = repository.run(["hash-object", "-w", sys.argv[2]], max_file_bytes=64 * 2**20)
large = repository.run(["hash-object", "-w", sys.argv[3]], max_file_bytes=64 * 2**20)
print(small.exit_code, large.exit_code, small.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "noise").write_bytes(os.urandom(2 * MIB))
    return tmp_path


def repository(folder: Path) -> BareRepository:
    made = BareRepository(folder / "control.git")
    made.create()
    return made


def test_the_bound_holds_where_nothing_else_does(folder: Path) -> None:
    store = repository(folder)
    assert store.run(["hash-object", "-w", str(folder / "noise")], max_file_bytes=MIB).exit_code != 0
    assert store.run(["hash-object", "-w", str(folder / "noise")], max_file_bytes=4 * MIB).exit_code == 0


@pytest.mark.parametrize(
    ("limit", "drop"),
    [
        pytest.param(f"--fsize={MIB}:", [], id="soft"),
        # Root may raise a hard limit unless it lacks this; another user may not reach the interpreter.
        pytest.param(f"--fsize={MIB}:{MIB}", ["setpriv", "--bounding-set=-sys_resource"], id="hard"),
    ],
)
def test_a_lower_limit_in_force_neither_fails_the_call_nor_is_raised(folder: Path, limit: str, drop: list[str]) -> None:
    if drop and os.geteuid() != 0:
        drop = []
    if shutil.which("prlimit") is None or (drop and shutil.which("setpriv") is None):
        pytest.skip("util-linux's prlimit and setpriv are not installed")
    repository(folder)
    argv = [
        *drop,
        sys.executable,
        "-c",
        STORE,
        str(folder / "control.git"),
        str(folder / "small"),
        str(folder / "noise"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["prlimit", limit, *argv], capture_output=True, text=True, timeout=240, check=False, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    small, large, *_ = done.stdout.split(" ")
    assert (small, large) != ("0", "0")
    assert small == "0", done.stdout
