"""Odd but legal objects of real repositories: they are sent, left out by name, or refused before anything is pushed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.content.checkout import check_out
from bridge.bus.content.workload import capture
from bridge.bus.open.create import new_record
from bridge.bus.store.user_clone import read_clone
from bridge.errors import KakeyaError, RequestRejectedError, UsageError
from bridge.system.clock import SystemClock
from tests.fakes.asking import make_request, push
from tests.fakes.git_servers import bare, git

CLOCK = SystemClock()
WHO = b"T <t@example.com> 1700000000 +0000"


@dataclass
class Place:
    """A bus, a host on it, and a clone whose commits are written byte by byte."""

    folder: Path

    def __post_init__(self) -> None:
        self.remote, self.top = bare(self.folder / "bus.git"), self.folder / "clone"
        self.host = open_bus(str(self.remote), repository=None, state=self.folder / "host", clock=CLOCK)
        self.host.create(new_record(CLOCK, wake="poll", local=True))
        git("init", "--quiet", "--initial-branch=main", str(self.top))
        self.file = self.write("blob", b"x\n")
        self.plain = self.tree((b"100644", b"data.txt", self.file))

    def write(self, kind: str, data: bytes) -> str:
        argv = ["git", "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
        return subprocess.run(argv, cwd=self.top, input=data, capture_output=True, check=True).stdout.decode().strip()

    def tree(self, *entries: tuple[bytes, bytes, str]) -> str:
        return self.write("tree", b"".join(b"%b %b\0%b" % (m, n, bytes.fromhex(o)) for m, n, o in entries))

    def commit(self, tree: str, who: bytes = WHO) -> str:
        oid = self.write("commit", b"tree %b\nauthor %b\ncommitter %b\n\nx\n" % (tree.encode(), who, who))
        git("update-ref", "refs/heads/main", oid, cwd=self.top)
        return oid

    def send(self, top: Path | None = None):
        """Send what is checked out, and return its request as the host reads it with the commit and tree it names."""
        state = self.folder / "client"
        captured = capture(top or self.top, state=state)
        bus = open_bus(str(self.remote), repository=top or self.top, state=state, clock=CLOCK)
        request = make_request(bus.identity().bus_id, "quick", workload=captured.workload)
        push(bus, request)
        return self.host.read_request(self.host.snapshot().requests[-1]).ref, captured

    def check_out(self, ref, tree: str) -> Path:
        into = self.folder / "work"
        into.mkdir()
        store, oid = self.host._requests.workload(ref, tree)
        with store.reader() as reader:
            check_out(reader, oid, into, CLOCK)
        return into


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize(
    "who",
    [
        b"T <t@example.com> 1700000000 +051800",  # psf/requests
        pytest.param(b"T<t@example.com> 1700000000 +0000", marks=pytest.mark.ci),
    ],
)
def test_a_commit_with_a_slip_of_an_old_tool_is_sent(place, who):
    place.commit(place.plain, who)
    ref, captured = place.send()
    assert (place.check_out(ref, captured.workload.tree) / "data.txt").read_bytes() == b"x\n"


SIGNED = b"""tree %b
author %b
committer %b
encoding ISO-8859-1
mergetag object %b
 type commit
 tag v1
 tagger %b
\x20
 a tag that was merged
gpgsig -----BEGIN SSH SIGNATURE-----
 U1NIU0lHAAAAAQ==
\x20
 -----END SSH SIGNATURE-----
gpgsig-sha256 rubbish
HG:extra a tool of its own

caf\xe9"""  # no newline at the end


def test_what_a_commit_carries_beside_its_tree_is_sent_as_it_is(place):
    """Signatures, a merged tag, an encoding, another tool's headers; whoever verifies them needs every byte."""
    tree, other = place.plain.encode(), place.commit(place.plain).encode()
    data = SIGNED % (tree, WHO, WHO, other, WHO)
    oid = place.write("commit", data)
    git("update-ref", "refs/heads/main", oid, cwd=place.top)
    ref, captured = place.send()
    assert captured.workload.commit == oid
    assert place.host.history.workload_commit(ref, oid).raw == data
    assert (place.check_out(ref, captured.workload.tree) / "data.txt").exists()


def test_zeros_before_a_mode_are_kept_so_the_tree_keeps_its_id(place):
    inner = place.tree((b"100644", b"a.txt", place.file))
    top = place.tree((b"100644", b"data.txt", place.file), (b"040000", b"tests", inner))  # pallets/flask
    place.commit(top)
    ref, captured = place.send()
    assert captured.workload.tree == top
    assert (place.check_out(ref, top) / "tests" / "a.txt").exists()


def test_a_submodule_is_named_as_left_out(place):
    place.commit(place.tree((b"100644", b"data.txt", place.file), (b"160000", b"vendor", "1" * 40)))
    ref, captured = place.send()
    assert captured.submodules == ("vendor",)
    assert list((place.check_out(ref, captured.workload.tree) / "vendor").iterdir()) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ((b"100644", b"caf\xe9.txt"), "not UTF-8"),
        ((b"100644", b"git~1"), "take for .git"),
        ((b"100644", b"new\nline"), "control characters"),
    ],
)
def test_what_no_host_checks_out_is_said_before_anything_is_pushed(place, entry, words):
    entries = sorted([(b"100644", b"data.txt", place.file), (*entry, place.file)], key=lambda it: it[1])
    place.commit(place.tree(*entries))
    with pytest.raises(RequestRejectedError, match=words):
        place.send()
    assert place.host.snapshot().requests == ()


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac refuses them")
def test_names_that_differ_in_case_are_sent_with_a_word_and_linux_takes_both(place):
    place.commit(place.tree((b"100644", b"Data.txt", place.file), (b"100644", b"data.txt", place.file)))
    ref, captured = place.send()  # as torvalds/linux has xt_TCPMSS.c and xt_tcpmss.c
    assert captured.twins == (("Data.txt", "data.txt"),)
    assert len(list(place.check_out(ref, captured.workload.tree).iterdir())) == 2


def test_an_absolute_link_is_said_before_anything_is_pushed(place):
    link = place.write("blob", b"/etc/passwd")
    place.commit(place.tree((b"100644", b"data.txt", place.file), (b"120000", b"link", link)))
    with pytest.raises(RequestRejectedError, match="absolute"):
        place.send()


def test_a_clone_with_sha_256_ids_is_told_so_in_a_sentence(place, tmp_path):
    other = tmp_path / "sha256"
    git("init", "--quiet", "--object-format=sha256", str(other))
    git("commit", "--quiet", "--allow-empty", "-m", "x", cwd=other)
    with pytest.raises(UsageError, match="by SHA-256, a bus by SHA-1"):
        capture(other, state=tmp_path / "state")


def test_a_partial_clone_sends_to_a_bus_that_is_not_where_it_came_from(place, tmp_path):
    origin = tmp_path / "origin"
    git("init", "--quiet", "--initial-branch=main", str(origin))
    git("config", "uploadpack.allowFilter", "true", cwd=origin)
    git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=origin)
    for text in ("one", "two"):
        (origin / "data.txt").write_text(text)
        git("add", "-A", cwd=origin)
        git("commit", "--quiet", "-m", text, cwd=origin)
    partial = tmp_path / "partial"
    git("clone", "--quiet", "--filter=blob:none", f"file://{origin}", str(partial))
    before = files_below(partial / ".git" / "objects")
    assert read_clone(partial).is_partial
    ref, captured = place.send(partial)
    assert (place.check_out(ref, captured.workload.tree) / "data.txt").read_text() == "two"
    assert files_below(partial / ".git" / "objects") == before


def files_below(folder: Path, keep: Callable[[str], bool] = bool) -> list[str]:
    return sorted(name for _, _, names in os.walk(folder) for name in names if keep(name))


@pytest.mark.parametrize("slip", ["zone", "mode"])
def test_a_slip_anywhere_in_a_history_does_not_make_all_of_it_unreadable(place, slip):
    """Of a protected ref the whole history is read."""
    odd = place.tree((b"0100644", b"data.txt", place.file)) if slip == "mode" else place.plain
    place.commit(odd, b"T <t@example.com> 1700000000 +051800" if slip == "zone" else WHO)
    git("read-tree", "main", cwd=place.top)
    tip = git("commit-tree", "-p", "main", "-m", "later", place.plain, cwd=place.top)
    git("push", "--quiet", str(place.remote), f"{tip}:refs/heads/main", cwd=place.top)
    store = place.host._store.isolate("history", [tip], max_bytes=1 << 20, commits=10)
    with store.reader() as reader:
        assert reader.read(tip, "commit", 1 << 16)


def test_a_tree_that_holds_git_s_own_folder_is_still_refused(place):
    place.commit(place.tree((b"100644", b".git", place.file)))
    git("push", "--quiet", str(place.remote), "main:refs/heads/main", cwd=place.top)
    tip = git("rev-parse", "main", cwd=place.top)
    with pytest.raises(KakeyaError, match="hasDotgit"):
        place.host._store.isolate("history", [tip], max_bytes=1 << 20)
