"""Large files of a request's tree: from the pinned server alone, verified and bounded, credentials kept at home."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.content.large_files import Handling
from bridge.errors import (
    InfrastructureError,
    KakeyaError,
    PolicyRefusedError,
    RemoteError,
    RequestRejectedError,
    UsageError,
)
from bridge.runner.policy.file import read_policy
from bridge.runner.run.large_files import PinnedServer, large_files
from bridge.system.clock import SystemClock
from bridge.system.gitlfs import LfsServer
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import bare, git
from tests.fakes.lfs_server import PASSWORD, USER, LfsServerFake
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record
from tests.integration.bus.test_hostile_repository import push
from tests.support.runner_world import World

CLOCK = SystemClock()
WEIGHTS = os.urandom(70_000)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    path = bare(tmp_path / "remote.git")
    open_bus(str(path), repository=None, state=tmp_path / "maker", clock=CLOCK).create(bus_record(CLOCK))
    return path


@pytest.fixture
def host(remote: Path, tmp_path: Path) -> Actor:
    return Actor(open_bus(str(remote), repository=None, state=tmp_path / "host", clock=CLOCK), CLOCK)


@pytest.fixture
def lfs(tmp_path: Path) -> Iterator[LfsServerFake]:
    server = LfsServerFake(tmp_path / "objects")
    yield server
    server.close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[LfsServerFake]:
    server = LfsServerFake(tmp_path / "elsewhere")
    server.add(WEIGHTS)
    yield server
    server.close()


def pointer(data: bytes, **changes: object) -> bytes:
    facts = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), **changes}
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{facts['oid']}\nsize {facts['size']}\n".encode()


def pinned(lfs: LfsServerFake, tmp_path: Path, *, max_bytes: int = 1_000_000, **changes: object) -> PinnedServer:
    server = LfsServer(lfs.url, user=USER, password=PASSWORD, wall_s=30.0)
    return PinnedServer(replace(server, **changes), tmp_path / "scratch", CLOCK, max_bytes)  # type: ignore[arg-type]


def check_out(remote: Path, host: Actor, tmp_path: Path, files: dict[str, bytes], handling: Handling) -> Path:
    ref, tree = push(remote, tmp_path, files, host)
    into = tmp_path / "job"
    into.mkdir()
    host.bus.fetch_workload(ref, tree, into, large_files=handling)
    return into


def test_what_real_git_lfs_pushed_is_what_the_run_gets(
    remote: Path, host: Actor, lfs: LfsServerFake, tmp_path: Path
) -> None:
    if shutil.which("git-lfs") is None:
        pytest.skip("git-lfs is not installed")
    work = tmp_path / "work"
    git("init", "--quiet", "--initial-branch=main", str(work))
    git("lfs", "install", "--local", cwd=work)
    git("lfs", "track", "*.bin", cwd=work)
    git("config", "lfs.url", lfs.url.replace("://", f"://{USER}:{PASSWORD}@"), cwd=work)
    (work / "weights.bin").write_bytes(WEIGHTS)
    (work / "deep").mkdir()
    (work / "deep/again.bin").write_bytes(WEIGHTS)
    (work / "empty.bin").write_bytes(b"")
    (work / "run.sh").write_bytes(b"#!/bin/sh\n")
    git("add", "--all", cwd=work)
    git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "x", cwd=work)
    git("push", "--quiet", str(remote), "HEAD:refs/heads/main", cwd=work)
    git("lfs", "push", "--all", str(remote), cwd=work)
    from bridge.bus.content.workload import capture

    state = tmp_path / "client"
    client = Actor(open_bus(str(remote), repository=work, state=state, clock=CLOCK), CLOCK)

    def fetch(*, dirty: bool) -> Path:
        captured = capture(work, state=state, dirty=dirty)
        sent = client.submit(client.request(workload=captured.workload))
        into = Path(tempfile.mkdtemp(dir=tmp_path))
        host.bus.fetch_workload(sent.ref, captured.workload.tree, into, large_files=pinned(lfs, tmp_path))
        return into

    lfs.requests.clear()
    into = fetch(dirty=False)
    assert (into / "weights.bin").read_bytes() == (into / "deep/again.bin").read_bytes() == WEIGHTS
    assert (into / "empty.bin").read_bytes() == b""
    assert [request.method for request in lfs.requests] == ["POST", "GET"]  # the same object twice is fetched once
    assert list((tmp_path / "scratch").iterdir()) == []
    (work / "weights.bin").write_bytes(b"changed" + WEIGHTS)
    with pytest.raises(RequestRejectedError, match="does not have object") as caught:
        fetch(dirty=True)  # a dirty tree sends the new pointer; nobody has pushed the object
    command = str(caught.value.remedy).partition(": git ")[2].replace("REMOTE", str(remote))
    git(*command.split(), cwd=work)
    assert (fetch(dirty=True) / "weights.bin").read_bytes() == b"changed" + WEIGHTS


def test_without_a_pinned_server_a_tree_with_pointers_is_refused_naming_the_owners_remedy(
    remote: Path, host: Actor, tmp_path: Path
) -> None:
    with pytest.raises(PolicyRefusedError, match=r"1 git-lfs pointers \('w.bin' first") as caught:
        check_out(remote, host, tmp_path, {"w.bin": pointer(WEIGHTS), "a": b"1"}, "refuse")
    assert "[lfs] url" in str(caught.value.remedy)
    assert "leave_pointers" in str(caught.value.remedy)


def test_an_owner_may_leave_pointers_as_they_are(remote: Path, host: Actor, tmp_path: Path) -> None:
    into = check_out(remote, host, tmp_path, {"w.bin": pointer(WEIGHTS)}, "leave")
    assert (into / "w.bin").read_bytes() == pointer(WEIGHTS)


def test_the_trees_own_lfsconfig_is_never_followed(
    remote: Path, host: Actor, lfs: LfsServerFake, elsewhere: LfsServerFake, tmp_path: Path
) -> None:
    lfs.add(WEIGHTS)
    config = f"[lfs]\n\turl = {elsewhere.url}\n".encode()
    into = check_out(remote, host, tmp_path, {".lfsconfig": config, "w.bin": pointer(WEIGHTS)}, pinned(lfs, tmp_path))
    assert (into / "w.bin").read_bytes() == WEIGHTS
    assert (into / ".lfsconfig").read_bytes() == config
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    ("misbehaviour", "says"),
    [
        ({"wrong_bytes": True}, "other bytes"),
        ({"cut": 100}, "sent 69900 bytes"),
        ({"bomb": 50_000_000}, "more than 70000"),
        ({"garbage": True}, "no answer that can be read"),
    ],
)
def test_bytes_that_are_not_the_object_never_enter_the_tree(
    remote: Path, host: Actor, lfs: LfsServerFake, tmp_path: Path, misbehaviour: dict[str, object], says: str
) -> None:
    lfs.add(WEIGHTS)
    for name, value in misbehaviour.items():
        setattr(lfs, name, value)
    with pytest.raises(InfrastructureError, match=says):
        check_out(remote, host, tmp_path, {"w.bin": pointer(WEIGHTS)}, pinned(lfs, tmp_path))
    assert (tmp_path / "job/w.bin").read_bytes() == pointer(WEIGHTS)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_server_that_trickles_ends_at_the_wall_limit(
    remote: Path, host: Actor, lfs: LfsServerFake, tmp_path: Path
) -> None:
    lfs.add(WEIGHTS)
    lfs.trickle_s = 0.05
    with pytest.raises(RemoteError, match=r"more than 2 s|no end within 2 s"):
        check_out(remote, host, tmp_path, {"w.bin": pointer(WEIGHTS)}, pinned(lfs, tmp_path, wall_s=2.0))


def test_a_redirect_is_not_followed_and_takes_no_credentials_along(
    remote: Path, host: Actor, lfs: LfsServerFake, elsewhere: LfsServerFake, tmp_path: Path
) -> None:
    lfs.add(WEIGHTS)
    lfs.redirect = elsewhere.origin
    with pytest.raises(RemoteError, match="redirect"):
        check_out(remote, host, tmp_path, {"w.bin": pointer(WEIGHTS)}, pinned(lfs, tmp_path))
    lfs.batch_redirect = elsewhere.origin
    with pytest.raises(RemoteError, match="redirect"), pinned(lfs, tmp_path).fetch([_object(WEIGHTS)]):
        pass
    assert elsewhere.requests == []


def test_objects_elsewhere_are_refused_unless_the_owner_named_the_place(
    remote: Path, host: Actor, lfs: LfsServerFake, elsewhere: LfsServerFake, tmp_path: Path
) -> None:
    lfs.add(WEIGHTS)
    lfs.objects_at = elsewhere.origin
    with pytest.raises(RemoteError, match="did not name") as caught:
        check_out(remote, host, tmp_path, {"w.bin": pointer(WEIGHTS)}, pinned(lfs, tmp_path))
    assert elsewhere.origin in str(caught.value.remedy)
    assert elsewhere.requests == []
    elsewhere.needs_credentials = False
    elsewhere.objects_at = "named"
    with pinned(lfs, tmp_path, also_from=(elsewhere.origin,)).fetch([_object(WEIGHTS)]) as files:
        assert [path.read_bytes() for path in files.values()] == [WEIGHTS]
    assert [request.authorization for request in elsewhere.requests] == [None]  # our credentials stay at home


def test_headers_of_an_answer_go_only_to_its_own_address_and_only_when_harmless(
    lfs: LfsServerFake, tmp_path: Path
) -> None:
    lfs.add(WEIGHTS)
    lfs.headers = {"Authorization": "RemoteAuth for-this-object"}
    with pinned(lfs, tmp_path).fetch([_object(WEIGHTS)]):
        pass
    assert lfs.requests[-1].authorization == "RemoteAuth for-this-object"
    for headers in ({"Host": "internal"}, {"X": "a\r\nHost: internal"}, {"X\r\nHost": "internal"}):
        lfs.headers = headers
        with (
            pytest.raises(RemoteError, match="header that is not sent"),
            pinned(lfs, tmp_path).fetch([_object(WEIGHTS)]),
        ):
            pass


def test_more_than_the_owner_allows_is_refused_before_anything_is_asked(
    remote: Path, host: Actor, lfs: LfsServerFake, tmp_path: Path
) -> None:
    files = {"a.bin": pointer(WEIGHTS), "b.bin": pointer(WEIGHTS)}
    with pytest.raises(RequestRejectedError, match="this host takes 100000"):
        check_out(remote, host, tmp_path, files, pinned(lfs, tmp_path, max_bytes=100_000))
    assert lfs.requests == []


def test_an_object_that_was_never_pushed_there_says_how_to(
    remote: Path, host: Actor, lfs: LfsServerFake, tmp_path: Path
) -> None:
    with pytest.raises(RequestRejectedError, match="does not have object") as caught:
        check_out(remote, host, tmp_path, {"w.bin": pointer(WEIGHTS)}, pinned(lfs, tmp_path))
    assert "git lfs push" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "data",
    [
        pointer(WEIGHTS, oid="../../../../etc/passwd".ljust(64, "0")),
        pointer(WEIGHTS, oid="A" * 64),
        pointer(WEIGHTS, size=-1),
        pointer(WEIGHTS, size="1e9"),
        pointer(WEIGHTS, size="9" * 30),
        pointer(WEIGHTS, size=0),
        pointer(WEIGHTS).replace(b"spec/v1", b"spec/v2"),
        pointer(WEIGHTS).replace(b"oid ", b"ext-0-evil sha256:" + b"0" * 64 + b"\noid "),
        pointer(WEIGHTS) + b"url http://127.0.0.1/\n",
        pointer(WEIGHTS).replace(b"sha256:", b"md5:"),
    ],
)
def test_a_pointer_that_is_not_exactly_one_is_refused(
    remote: Path, host: Actor, lfs: LfsServerFake, tmp_path: Path, data: bytes
) -> None:
    with pytest.raises(KakeyaError, match=r"pointer|extension") as caught:
        check_out(remote, host, tmp_path, {"w.bin": data}, pinned(lfs, tmp_path))
    assert isinstance(caught.value, RequestRejectedError)
    assert lfs.requests == []


def test_a_server_that_does_not_know_us_is_an_error_without_the_password(lfs: LfsServerFake, tmp_path: Path) -> None:
    lfs.add(WEIGHTS)
    with (
        pytest.raises(RemoteError, match="answers 401") as caught,
        pinned(lfs, tmp_path, password="forgotten").fetch([_object(WEIGHTS)]),
    ):
        pass
    assert "forgotten" not in str(caught.value) + repr(pinned(lfs, tmp_path, password="forgotten"))


@pytest.mark.parametrize(("status", "passes"), [(429, True), (503, True), (403, False)])
def test_what_may_pass_is_told_from_what_will_not(
    lfs: LfsServerFake, tmp_path: Path, status: int, passes: bool
) -> None:
    lfs.broken = status
    with (
        pytest.raises(RemoteError, match=f"answers {status}") as caught,
        pinned(lfs, tmp_path).fetch([_object(WEIGHTS)]),
    ):
        pass
    assert caught.value.is_passing is passes


def _object(data: bytes):  # type: ignore[no-untyped-def]
    from bridge.system.gitlfs import LfsObject

    return LfsObject(hashlib.sha256(data).hexdigest(), len(data))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('url = "http://lfs.example.org/x"', "expected https"),
        ('url = "file:///etc"', "expected an https URL"),
        ('url = "https://me:secret@lfs.example.org/x"', "no user, password"),
        ('url = "https://lfs.example.org/x"\nalso_from = ["ssh://lfs.example.org"]', "expected an https URL"),
        ('url = "https://lfs.example.org/x"\nleave_pointers = true', "contradict each other"),
        ("max_bytes = 0", "greater than 0"),
    ],
)
def test_a_policy_names_a_server_or_says_what_is_wrong(lines: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_policy(f'schema = 1\nname = "mini"\n[lfs]\n{lines}\n'.encode())


def test_what_the_policy_says_is_what_happens_to_pointers(lfs: LfsServerFake, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    lfs.add(WEIGHTS)

    def handling(lines: str) -> Handling:
        world.policy_text = f'schema = 1\nname = "mini"\n{lines}\n'
        return large_files(world.policy.lfs, tmp_path / "lfs", CLOCK)

    remote = MemoryRemote()
    MemoryBus(remote, clock=CLOCK).create(bus_record(CLOCK))
    world = World(state=tmp_path / "state", remote=remote, clock=CLOCK)
    assert handling("") == "refuse"
    assert handling("[lfs]\nleave_pointers = true") == "leave"
    named = f'[lfs]\nurl = "{lfs.url}"\nuser = "{USER}"\npassword_file = "{password}"'
    source = handling(named)
    assert isinstance(source, PinnedServer)
    with source.fetch([_object(WEIGHTS)]) as files:
        assert [path.read_bytes() for path in files.values()] == [WEIGHTS]
    password.chmod(0o644)
    with pytest.raises(UsageError, match="0644"):
        handling(named)
