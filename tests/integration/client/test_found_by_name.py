"""A request that was sent before is found by its name, over real git: no stranger's tree is fetched for that."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.bus.views import RequestRef
from bridge.errors import RequestRejectedError
from bridge.system.clock import SystemClock

CLOCK = SystemClock()
LARGE = 3 << 20


def git(*words, cwd: Path) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", *names, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def pushed(tmp_path):
    """Return a bus folder and a request branch with a large work tree beside the request."""
    remote, work = tmp_path / "bus.git", tmp_path / "work"
    git("init", "-q", "--bare", str(remote), cwd=tmp_path)
    git("init", "-q", str(work), cwd=tmp_path)
    for name, data in {".mac-bridge/request.json": b"{}", "large": LARGE, "a/b/c/d": LARGE, "src/deep/e": b"x"}.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(data) if isinstance(data, int) else data)
    git("add", "-A", cwd=work)
    git("commit", "-qm", "x", cwd=work)
    ref = f"refs/heads/mac-bridge/x-{'0' * 26}-{'a' * 12}"
    git("push", "-q", str(remote), f"HEAD:{ref}", cwd=work)
    bus = open_bus(f"file://{remote}", repository=None, state=tmp_path / "state", clock=CLOCK)
    bus.create(new_record(CLOCK, wake="poll", local=True))
    return remote, bus, RequestRef("0" * 26, ref, git("rev-parse", "HEAD", cwd=work))


@pytest.mark.parametrize("filters", [True, False])
def test_a_request_is_read_without_the_tree_beside_it_where_the_remote_leaves_that_out(pushed, tmp_path, filters):
    remote, bus, ref = pushed
    git("config", "uploadpack.allowFilter", str(filters).lower(), cwd=remote)
    if filters:
        assert bus.peek_request(ref).data == b"{}"
    else:
        with pytest.raises(RequestRejectedError):
            bus.peek_request(ref)
    kept_bytes = sum(path.stat().st_size for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert kept_bytes < 200_000
