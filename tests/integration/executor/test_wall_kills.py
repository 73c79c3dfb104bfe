"""The study of kills finds what is left where something is, and nothing after real kills."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from benchmarks.studies.sandbox import wall_kills
from bridge.executor.holder.folder import RunFolder, take
from tests.support.waiting import until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux"),
    pytest.mark.skipif(os.getuid() != 0, reason="a namespace, a mount and a file of another user's need root"),
]


def counts(traces, base):
    return wall_kills._left(traces, base, "z" * 26, base / "run.handle")


def test_whatever_is_left_is_counted_by_its_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(wall_kills.tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("tmp", "run.handle", "mount"):
        (tmp_path / name).mkdir()
    own = Path("/dev/shm", f"kakeya-{uuid.uuid4()}")
    lock = os.open(tmp_path / "run.handle" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    with subprocess.Popen(["unshare", "--net", "sleep", "600"]) as process:
        try:
            traces = wall_kills.Traces({psutil.Process(process.pid)})
            ours = wall_kills._namespaces(os.getpid())
            until(lambda: wall_kills._namespaces(process.pid) - ours)
            traces.namespaces = wall_kills._namespaces(process.pid) - ours
            assert counts(traces, tmp_path) == {"processes": 1, "namespaces": 1}
            own.touch()
            os.chown(own, wall_kills.UID, wall_kills.UID)
            (tmp_path / "tmp" / "x").touch()
            assert take(lock)
            subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path / "mount")], check=True)
            kinds = {"processes", "namespaces", "mounts", "files of the run's user", "temporary files", "locks"}
            assert set(counts(traces, tmp_path)) == kinds
        finally:
            process.kill()
            subprocess.run(["umount", str(tmp_path / "mount")], check=False)
            own.unlink(missing_ok=True)
    (tmp_path / "tmp" / "x").unlink()
    os.close(lock)

    assert counts(traces, tmp_path) == {}
    assert RunFolder(tmp_path / "run.handle").taken() is False


@pytest.mark.ci
@pytest.mark.parametrize("case", ["supervisor 0", "another process 0"])
def test_after_kills_at_drawn_moments_nothing_is_left(need_sandbox, monkeypatch, case):
    need_sandbox("other_user")
    monkeypatch.setattr(wall_kills, "KILLS", 2)
    (row,) = wall_kills.run(case)

    assert row["seed"] == case
    assert [kill["left"] for kill in row["kills"]] == [{}, {}]
