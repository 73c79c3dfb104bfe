"""Objects are read through one git that stays open: within its bounds, by many threads, and with no process left."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha1
from pathlib import Path

import psutil
import pytest

from bridge.errors import GitError
from bridge.limits import GIT_OBJECT_SERVER_BYTES, MIB
from bridge.system.gitobjects import GitObject, blob
from bridge.system.gitreader import GitObjectMissingError, GitObjectTooLargeError, ObjectReader
from bridge.system.gitrepository import BareRepository
from tests.support.waiting import until

HELLO = blob(b"hello\n")
BASE_BYTES = 300 * MIB
QUIET_S = 0.2


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[BareRepository]:
    made = BareRepository(tmp_path / "objects.git")
    made.create()
    made.write([HELLO], durable=False)
    yield made
    made.close()


def servers(repository: BareRepository) -> list[psutil.Process]:
    """Return the object servers of a repository that this process started and did not end."""
    matching = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # another test's, which has ended
            matching += [child] if f"--git-dir={repository.path}" in child.cmdline() else []
    return matching


def read(repository: BareRepository, item: GitObject, max_bytes: int = MIB) -> bytes:
    with repository.reader() as reader:
        return reader.read(item.oid, item.kind, max_bytes)


def pack(repository: BareRepository, *items: GitObject) -> Path:
    """Store objects in a pack of their own and return its path."""
    before = set((repository.objects / "pack").glob("*.pack"))
    repository.write(items, durable=True)
    (path,) = set((repository.objects / "pack").glob("*.pack")) - before
    return path


def write_bomb(repository: BareRepository) -> str:
    """Store a blob of ten bytes as a delta on one of 300 MiB; return its id."""
    piece, packer = bytes(MIB), zlib.compressobj(1)
    base = b"".join(packer.compress(piece) for _ in range(BASE_BYTES // MIB)) + packer.flush()
    # gitformat-pack(5): sizes of base and result, then an order to copy ten bytes from the beginning
    delta = varint(BASE_BYTES) + varint(10) + bytes([0b10010000, 10])
    head = entry_head(3, BASE_BYTES)
    back, distance = len(head) + len(base), [(len(head) + len(base)) & 127]
    while back := back >> 7:
        back -= 1
        distance.insert(0, 128 | back & 127)
    packed = b"PACK" + struct.pack(">2I", 2, 2) + head + base
    packed += entry_head(6, len(delta)) + bytes(distance) + zlib.compress(delta)
    argv = ["git", f"--git-dir={repository.path}", "index-pack", "--stdin"]
    subprocess.run(argv, input=packed + sha1(packed).digest(), check=True, capture_output=True, timeout=240)
    return blob(bytes(10)).oid


def entry_head(number: int, size: int) -> bytes:
    return varint(size, first_bits=4, first=number << 4)


def varint(size: int, *, first_bits: int = 7, first: int = 0) -> bytes:
    digits = [first | size & (1 << first_bits) - 1]
    size >>= first_bits
    while size:
        digits[-1] |= 128
        digits.append(size & 127)
        size >>= 7
    return bytes(digits)


def test_nothing_is_started_before_something_is_read_and_then_one_git_for_all(repository: BareRepository) -> None:
    with repository.reader():
        assert servers(repository) == []
    assert read(repository, HELLO) == HELLO.data
    (first,) = servers(repository)
    assert read(repository, HELLO) == HELLO.data
    assert servers(repository) == [first]
    repository.close()
    assert servers(repository) == []
    assert read(repository, HELLO) == HELLO.data


def test_a_repository_that_nobody_holds_any_more_leaves_no_process(tmp_path: Path) -> None:
    dropped = BareRepository(tmp_path / "objects.git")
    dropped.create()
    dropped.write([HELLO], durable=False)
    assert read(dropped, HELLO) == HELLO.data
    (server,) = servers(dropped)
    del dropped
    assert not server.is_running()


def test_a_process_that_is_killed_leaves_no_git_behind(repository: BareRepository) -> None:
    program = (
        "import os, sys, psutil\nfrom pathlib import Path\nfrom bridge.system.gitrepository import BareRepository\n"
        "repository = BareRepository(Path(sys.argv[1]))\n"
        "with repository.reader() as reader:\n    reader.has(sys.argv[2])\n"
        "print(*[child.pid for child in psutil.Process().children()], flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    argv = [sys.executable, "-c", program, str(repository.path), HELLO.oid]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    (pid,) = map(int, ended.stdout.split())
    with contextlib.suppress(psutil.NoSuchProcess):
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, why="a git goes on")


def test_a_blob_of_a_thousand_to_one_is_refused_before_it_is_inflated(repository: BareRepository) -> None:
    bomb = blob(bytes(48 * MIB))
    pack(repository, bomb)
    with repository.reader() as reader, pytest.raises(GitObjectTooLargeError, match=f"{48 * MIB} bytes"):
        reader.read(bomb.oid, "blob", MIB)
    (server,) = servers(repository)
    assert server.memory_info().rss < 24 * MIB
    assert read(repository, HELLO) == HELLO.data


def test_a_small_delta_on_a_huge_base_ends_the_git_that_reads_it_and_nothing_else(repository: BareRepository) -> None:
    oid = write_bomb(repository)
    with repository.reader() as reader:
        assert reader.size(oid) == 10
        with pytest.raises(GitError, match=f"while it read object {oid[:12]}: .*") as caught:
            reader.read(oid, "blob", MIB)
    assert "memory limit" in (caught.value.remedy or "")
    assert read(repository, HELLO) == HELLO.data


@pytest.mark.skipif(not hasattr(psutil.Process, "rlimit"), reason="bounding another process takes Linux")
def test_the_address_space_of_the_git_that_reads_is_bounded(repository: BareRepository) -> None:
    assert read(repository, HELLO) == HELLO.data
    (server,) = servers(repository)
    assert server.rlimit(psutil.RLIMIT_AS) == (GIT_OBJECT_SERVER_BYTES, GIT_OBJECT_SERVER_BYTES)


def test_a_large_blob_in_order_is_read_whole(repository: BareRepository) -> None:
    large = blob(os.urandom(MIB) * 8)
    pack(repository, large)
    assert read(repository, large, 8 * MIB) == large.data


def test_a_git_that_was_killed_is_started_once_more(repository: BareRepository) -> None:
    assert read(repository, HELLO) == HELLO.data
    (server,) = servers(repository)
    server.kill()
    assert read(repository, HELLO) == HELLO.data
    assert [child.pid for child in servers(repository)] != [server.pid]


def test_a_git_that_ends_again_is_an_error_that_names_the_object(repository: BareRepository) -> None:
    (repository.path / "HEAD").unlink()  # no repository any more
    with pytest.raises(GitError, match=f"{HELLO.oid[:12]}: fatal: not a git repository"):
        read(repository, HELLO)
    assert servers(repository) == []


def test_a_git_that_does_not_answer_is_given_up(repository: BareRepository) -> None:
    reader = ObjectReader(repository.path, {}, (repository.objects,))
    assert reader.has(HELLO.oid)
    (server,) = servers(repository)
    assert reader._server is not None
    reader._server._quiet_s = QUIET_S  # of this git alone: to start, each may take what a busy machine takes
    server.suspend()
    with pytest.raises(GitError, match="did not answer within"):
        reader.has(HELLO.oid)
    assert reader.read(HELLO.oid, "blob", MIB) == HELLO.data
    reader.close()


def test_what_git_says_beside_its_answers_does_not_stop_it(repository: BareRepository) -> None:
    damaged = blob(b"damaged\n")
    repository.write([damaged], durable=False)
    path = repository.objects / damaged.oid[:2] / damaged.oid[2:]
    path.chmod(0o600)
    path.write_bytes(b"no zlib")
    with repository.reader() as reader:
        assert not any(reader.has(damaged.oid) for _ in range(3000))  # a line each, more than a pipe takes
    assert read(repository, HELLO) == HELLO.data


def test_what_a_pack_held_that_was_deleted_is_not_here_any_more(repository: BareRepository) -> None:
    packed = blob(b"packed\n" * 1000)
    path = pack(repository, packed)
    assert read(repository, packed) == packed.data
    path.with_suffix(".idx").unlink()
    path.unlink()
    with pytest.raises(GitObjectMissingError):
        read(repository, packed)


def test_an_object_that_came_after_the_start_is_read_from_the_same_git(repository: BareRepository) -> None:
    assert read(repository, HELLO) == HELLO.data
    before, packed, loose = servers(repository), blob(b"packed later\n"), blob(b"written later\n")
    pack(repository, packed)
    repository.write([loose], durable=False)
    assert [read(repository, later) for later in (packed, loose)] == [packed.data, loose.data]
    assert servers(repository) == before


def test_threads_take_turns(repository: BareRepository) -> None:
    blobs = [blob(f"{number} ".encode() * (number * 50)) for number in range(64)]
    pack(repository, *blobs)
    with ThreadPoolExecutor(8) as pool:
        contents = list(pool.map(lambda item: read(repository, item), blobs * 8))
    assert contents == [item.data for item in blobs * 8]
    assert len(servers(repository)) == 1


@pytest.mark.parametrize("name", ["HEAD", "", "0" * 40 + "\ninfo HEAD", "g" * 40])
def test_what_is_no_object_id_is_not_sent_to_git(repository: BareRepository, name: str) -> None:
    with repository.reader() as reader, pytest.raises(GitError, match="is no object id"):
        reader.has(name)
    assert servers(repository) == []


def test_a_git_that_is_too_old_is_named_and_no_object_is_called_damaged(
    repository: BareRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "old" / "git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nprintf 'error: unknown option\\n    --batch-all-objects  show all\\n' >&2\nexit 129\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{git.parent}:/usr/bin:/bin")

    with pytest.raises(GitError, match=r"expected git 2\.36 or newer") as raised:
        read(repository, blob(b"x"))

    assert raised.value.remedy == "install git 2.36 or newer"
