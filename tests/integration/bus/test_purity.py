"""The requester's clone is read, never written: whatever state it is in, and whether or not the push succeeds."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.content.workload import capture
from bridge.errors import BusError, KakeyaError, RemoteError, UsageError
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import bare, git
from tests.fakes.memory_bus import bus_record


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a folder, content and mode; access times are the machine's business."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        entries[str(path.relative_to(folder))] = f"{stat.st_mode:o} {hashlib.sha256(data).hexdigest()[:16]}"
    return entries


def hooks_that_tell(clone: Path, canary: Path) -> None:
    """Hooks of every kind that git might run for us; each leaves a trace."""
    folder = clone / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    for name in (
        "pre-push",
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "pre-commit",
        "fsmonitor-watchman",
    ):
        hook = folder / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {canary}\n")
        hook.chmod(0o755)
    git("config", "core.fsmonitor", str(folder / "fsmonitor-watchman"), cwd=clone)
    git("config", "push.followTags", "true", cwd=clone)
    git("config", "push.gpgSign", "if-asked", cwd=clone)
    git("config", "fetch.prune", "true", cwd=clone)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    path = bare(tmp_path / "remote.git")
    bus = open_bus(str(path), repository=None, state=tmp_path / "maker", clock=FakeClock())
    bus.create(bus_record(FakeClock()))
    return path


@pytest.fixture
def clone(tmp_path: Path, remote: Path) -> Path:
    """A clone in the middle of someone's work."""
    seed = tmp_path / "seed"
    git("init", "--quiet", "--initial-branch=main", str(seed))
    for number in range(3):
        (seed / "code.py").write_text(f"print({number})\n")
        (seed / "other.txt").write_text("same\n")
        git("add", ".", cwd=seed)
        git("commit", "--quiet", "-m", f"commit {number}", cwd=seed)
    git("push", "--quiet", str(remote), "main", cwd=seed)
    path = tmp_path / "clone"
    git("clone", "--quiet", f"file://{remote}", str(path))
    (path / "stashed.txt").write_text("x")
    git("add", "stashed.txt", cwd=path)
    git("stash", "--quiet", cwd=path)
    git("tag", "-a", "-m", "t", "v1", cwd=path)
    (path / "staged.py").write_text("staged = True\n")
    git("add", "staged.py", cwd=path)
    (path / "code.py").write_text("print('changed')\n")
    (path / "untracked.txt").write_text("mine")
    return path


def follow_a_run(clone: Path, tmp_path: Path, *, dirty: bool, remote: str = "origin") -> dict[str, bytes]:
    """Everything a requester does, with a host on the other side; returns the files the host was sent."""
    clock = FakeClock()
    state = tmp_path / "state"
    captured = capture(clone, state=state, dirty=dirty)
    client = Actor(open_bus(remote, repository=clone, state=state, clock=clock), clock)
    host = Actor(open_bus(str(tmp_path / "remote.git"), repository=None, state=tmp_path / "host", clock=clock), clock)
    sent = client.submit(client.request(workload=captured.workload))
    client.bus.view(sent.ref.id)
    into = tmp_path / "job"
    into.mkdir()
    host.bus.fetch_workload(host.bus.snapshot().requests[0], captured.workload.tree, into)
    ended = host.run(sent.ref)
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"
    assert client.bus.view(sent.ref.id).delivery == "copied"
    client.bus.read_result(ended.claim.result_oid or "")
    client.bus.read_log(sent.ref.id)
    client.bus.ask_cancel(sent.ref.id, b"{}")
    return {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()}


@pytest.mark.parametrize("dirty", [False, True])
@pytest.mark.parametrize("shape", ["branch", "detached", "worktree", "shallow"])
def test_a_run_leaves_the_clone_as_it_was(clone: Path, remote: Path, tmp_path: Path, shape: str, dirty: bool) -> None:
    where = clone
    if shape == "detached":
        git("checkout", "--quiet", "--detach", "HEAD", cwd=clone)
    if shape == "worktree":
        where = tmp_path / "linked"
        git("worktree", "add", "--quiet", "-b", "side", str(where), cwd=clone)
        (where / "code.py").write_text("print('changed')\n")
        (where / "staged.py").write_text("staged = True\n")
        git("add", "staged.py", cwd=where)
    if shape == "shallow":
        where = tmp_path / "shallow"
        git("clone", "--quiet", "--depth=1", f"file://{remote}", str(where))
        (where / "code.py").write_text("print('changed')\n")
        (where / "staged.py").write_text("staged = True\n")
        git("add", "staged.py", cwd=where)
    canary = tmp_path / "canary"
    hooks_that_tell(clone, canary)
    before = {str(folder): fingerprint(folder) for folder in {clone, where}}
    files = follow_a_run(where, tmp_path, dirty=dirty)
    assert {str(folder): fingerprint(folder) for folder in {clone, where}} == before
    assert not canary.exists()
    assert files["other.txt"] == b"same\n"
    assert files["code.py"] == (b"print('changed')\n" if dirty else b"print(2)\n")
    assert ("staged.py" in files) == dirty
    assert "untracked.txt" not in files
    assert "refs/tags/v1" not in git("for-each-ref", "--format=%(refname)", cwd=remote)


def test_a_refused_push_leaves_the_clone_as_it_was_too(clone: Path, remote: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    captured = capture(clone, state=tmp_path / "state", dirty=True)
    client = Actor(open_bus("origin", repository=clone, state=tmp_path / "state", clock=clock), clock)
    request = client.request(workload=captured.workload)
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'protected branch' >&2\nexit 1\n")
    hook.chmod(0o755)
    before = fingerprint(clone)
    with pytest.raises(RemoteError, match="did not take"):
        client.submit(request)
    assert fingerprint(clone) == before


def test_a_snapshot_counts_what_it_adds(clone: Path, tmp_path: Path) -> None:
    captured = capture(clone, state=tmp_path / "state", dirty=True)
    assert captured.workload.dirty
    assert (captured.files, captured.bytes) == (2, len("print('changed')\n") + len("staged = True\n"))
    assert captured.workload.commit == git("rev-parse", "HEAD", cwd=clone)
    clean = capture(clone, state=tmp_path / "state")
    assert not clean.workload.dirty
    assert clean.workload.tree == git("rev-parse", "HEAD^{tree}", cwd=clone)
    (clone / "other.txt").unlink()
    assert capture(clone, state=tmp_path / "state", dirty=True).files == 3


def test_a_snapshot_has_what_was_written_in_the_second_of_the_last_commit(clone: Path, tmp_path: Path) -> None:
    """Size, inode and time to the second are then as git wrote them down: only the content tells."""
    second = int(time.time()) - 60
    git("config", "core.trustctime", "false", cwd=clone)  # the one time of a file that nobody can set
    (clone / "code.py").write_text("print('aaaaaaa')\n")
    os.utime(clone / "code.py", (second, second))
    git("commit", "--quiet", "-a", "-m", "in this second", cwd=clone)
    (clone / "code.py").write_text("print('bbbbbbb')\n")
    for path in (clone / "code.py", clone / ".git" / "index"):
        os.utime(path, (second, second))
    captured = capture(clone, state=tmp_path / "state", dirty=True)
    assert (captured.workload.dirty, captured.files) == (True, 1)


def test_a_snapshot_of_another_revision_is_refused(clone: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not at"):
        capture(clone, state=tmp_path / "state", rev="HEAD~1", dirty=True)
    assert capture(clone, state=tmp_path / "state", rev="HEAD~1").workload.commit == git(
        "rev-parse", "HEAD~1", cwd=clone
    )
    for nonsense in ("no-such", "--output=x", "HEAD^{tree}"):
        with pytest.raises(UsageError):
            capture(clone, state=tmp_path / "state", rev=nonsense)


def test_a_committed_mac_bridge_folder_is_replaced_not_sent_on(clone: Path, tmp_path: Path) -> None:
    folder = clone / ".mac-bridge"
    folder.mkdir()
    (folder / "request.json").write_text("stale")
    git("add", "-f", ".mac-bridge", cwd=clone)
    git("commit", "--quiet", "-m", "leftover", cwd=clone)
    files = follow_a_run(clone, tmp_path, dirty=False)
    assert not any(name.startswith(".mac-bridge") for name in files)


@pytest.mark.parametrize("key", ["url.ssh://elsewhere/.pushInsteadOf", "remote.origin.pushurl"])
def test_a_configuration_that_pushes_elsewhere_is_refused(clone: Path, tmp_path: Path, key: str) -> None:
    if key.endswith("pushurl"):
        git("config", "--add", key, "https://one.example/x", cwd=clone)
        git("config", "--add", key, "https://two.example/x", cwd=clone)
    else:
        git("config", key, "file://", cwd=clone)
    with pytest.raises(BusError, match=r"elsewhere|2 places"):
        open_bus("origin", repository=clone, state=tmp_path / "state", clock=FakeClock())


def test_instead_of_is_followed_and_other_routes_are_named(clone: Path, remote: Path, tmp_path: Path) -> None:
    git("config", f"url.file://{remote.parent}/.insteadOf", "work:", cwd=clone)
    bus = open_bus("work:remote.git", repository=clone, state=tmp_path / "state", clock=FakeClock())
    assert bus.identity().bus_id
    for route in ("ext::sh -c x", "--upload-pack=x", "nowhere", "git://x/y"):
        with pytest.raises(UsageError):
            open_bus(route, repository=clone, state=tmp_path / "state", clock=FakeClock())


def test_passwords_in_urls_are_never_shown(tmp_path: Path) -> None:
    bus = open_bus("http://me:hunter2@127.0.0.1:9/x.git", repository=None, state=tmp_path / "s", clock=FakeClock())
    assert "hunter2" not in bus.route
    with pytest.raises(KakeyaError) as caught:
        bus.identity()
    assert "hunter2" not in str(caught.value)
