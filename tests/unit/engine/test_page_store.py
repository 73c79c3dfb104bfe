"""A store of evicted pages: whole pages or one error, one owner, and nothing left behind however a process ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.backends.page_store import PageFile, PageMemory, PageStore
from engine.errors import PageError

WRITER = """
import os, resource, sys
from engine.backends.page_store import PageFile
from engine.errors import PageError
what = sys.argv[1]
pages = PageFile()
pages.claim()
if what == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    for number in range(3):
        pages.write(bytes([number]) * 3000)
except PageError as error:
    print(error, flush=True)
if what == "forever":
    print("writing", flush=True)
    while True:
        try:
            pages.write(b"x" * 3000)
        except PageError:
            pages.close()
            pages = PageFile()
if what == "fork":
    child = os.fork()
    if child == 0:
        try:
            pages.page(0)
        except PageError as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
if what == "kill":
    print("written", flush=True)
    sys.stdin.read()
if what == "crash":
    os.abort()
"""


@pytest.fixture(params=[PageFile, PageMemory])
def store(request: pytest.FixtureRequest) -> PageStore:
    return request.param()


def started(what: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(folder)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, what], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def test_pages_come_back_as_they_were_written(store: PageStore) -> None:
    written = [bytes([number]) * 8 for number in range(3)]
    for page in written:
        store.write(page)
    assert [bytes(page) for page in store.read()] == written
    assert bytes(store.page(1)) == written[1]
    assert (len(store), store.page_bytes, store.bytes_read) == (3, 8, 32)
    assert store.memory_bytes == (8 if isinstance(store, PageFile) else 24)
    with pytest.raises(PageError, match="a page of 7 bytes; expected 8"):
        store.write(b"1234567")


def test_a_page_that_is_not_what_was_written_is_an_error() -> None:
    pages = PageFile()
    pages.write(b"12345678")
    pages.write(b"abcdefgh")
    os.pwrite(pages._file.fileno(), b"x", 9)
    assert bytes(pages.page(0)) == b"12345678"
    with pytest.raises(PageError, match="page 1 of evicted rows is not what was written; decode again"):
        pages.page(1)
    os.truncate(pages._file.fileno(), 4)
    with pytest.raises(PageError, match="page 0"):
        list(pages.read())


def test_a_disk_that_reads_no_more_is_one_error_with_a_remedy() -> None:
    pages = PageFile()
    pages.write(b"12345678")
    reader, writer = os.pipe()
    os.dup2(reader, pages._file.fileno())  # what takes no position, as a disk that is gone reads nothing
    with pytest.raises(PageError, match=r"cannot read evicted rows: .*; let TMPDIR name a sound disk"):
        pages.page(0)
    for end in (reader, writer):
        os.close(end)


def test_a_store_has_one_owner(store: PageStore) -> None:
    store.claim()
    with pytest.raises(PageError, match="belongs to another session; open a store for each"):
        store.claim()


def test_a_closed_store_says_so(store: PageStore) -> None:
    store.write(b"12345678")
    store.close()
    store.close()
    assert store.memory_bytes == 0
    with pytest.raises(PageError, match="is closed; decode again"):
        store.page(0)
    with pytest.raises(PageError, match="is closed"):
        store.write(b"12345678")


@pytest.mark.parametrize(
    ("what", "message", "code"),
    [
        ("full", "let TMPDIR name a roomy disk", 0),
        ("fork", "belongs to process", 0),
        ("crash", "", -signal.SIGABRT),
        ("kill", "written", -signal.SIGKILL),
        ("forever", "writing", -signal.SIGKILL),
    ],
)
def test_nothing_is_left_of_a_process_however_it_ends(tmp_path: Path, what: str, message: str, code: int) -> None:
    process = started(what, tmp_path)
    if code == -signal.SIGKILL:
        assert process.stdout is not None
        assert message in process.stdout.readline()
        assert list(tmp_path.iterdir()) == [], "a file with a name could be deleted or read by another process"
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    out, err = process.communicate()
    assert process.returncode == code, err
    assert code == -signal.SIGKILL or message in out
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_is_one_error_and_holds_nothing_afterwards(tmp_path: Path) -> None:
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = 'mount -t tmpfs -o size=8k none "$0" && '
    if shutil.which("unshare") is None or subprocess.run([*apart, f"{mount}true", tmp_path], check=False).returncode:
        pytest.skip("nobody may mount a small disk here")
    script = f'{mount}"$1" -c "$2" nothing; df --output=used "$0" | tail -1'
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [*apart, script, str(tmp_path), sys.executable, WRITER]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    message = "cannot write evicted rows: the disk is full; let TMPDIR name a roomy disk"
    assert [line.strip() for line in done.stdout.splitlines()] == [message, "0"], done.stderr


def test_a_folder_that_takes_no_file_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(PageError, match="let TMPDIR name a folder to write in"):
        PageFile()
