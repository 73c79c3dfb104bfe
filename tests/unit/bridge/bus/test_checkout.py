"""What a stranger's tree may not do: everything is checked before anything is written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.bus.content.checkout import CheckoutBounds, check_out, survey
from bridge.errors import RequestRejectedError
from bridge.system.gitobjects import (
    DIRECTORY,
    EXECUTABLE,
    REGULAR,
    SUBMODULE,
    SYMLINK,
    GitObject,
    TreeEntry,
    blob,
    tree,
)
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import MemoryRemote, MemoryStore


class Forge:
    """Builds trees that no honest git would."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryRemote())

    def blob(self, data: bytes) -> str:
        return self._add(blob(data))

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        return self._add(tree(TreeEntry(*entry) for entry in entries))

    def file(self, data: bytes = b"x") -> str:
        return self.blob(data)

    def _add(self, git_object: GitObject) -> str:
        self.store.write([git_object])
        return git_object.oid

    def check_out(self, oid: str, into: Path, bounds: CheckoutBounds | None = None) -> None:
        with self.store.reader() as reader:
            check_out(reader, oid, into, FakeClock(), bounds)


@pytest.fixture
def forge() -> Forge:
    return Forge()


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    return folder


def refused(forge: Forge, into: Path, oid: str, match: str, bounds: CheckoutBounds | None = None) -> None:
    with pytest.raises(RequestRejectedError, match=match) as caught:
        forge.check_out(oid, into, bounds)
    assert "\n" not in caught.value.message
    assert list(into.iterdir()) == []
    assert list(into.parent.iterdir()) == [into]


def test_files_folders_links_and_modes_arrive(forge: Forge, into: Path) -> None:
    inner = forge.tree((REGULAR, b"a.txt", forge.file(b"hello")), (EXECUTABLE, b"run", forge.file(b"#!/bin/sh\n")))
    top = forge.tree(
        (DIRECTORY, b"d", inner),
        (SYMLINK, b"link", forge.file(b"d/a.txt")),
        (SYMLINK, b"up", forge.file(b"d/../d/run")),
        (SYMLINK, b"dangling", forge.file(b"d/none")),
        (SUBMODULE, b"sub", "0" * 40),
        (REGULAR, b".gitattributes", forge.file(b"* filter=evil\n")),
        (REGULAR, b".gitmodules", forge.file(b"[submodule]\n")),
        (REGULAR, b".lfsconfig", forge.file(b"[lfs]\nurl=https://evil.example\n")),
        (REGULAR, "naïve.txt".encode(), forge.file(b"")),
    )
    forge.check_out(top, into)
    assert (into / "link").read_bytes() == b"hello"
    assert os.access(into / "d/run", os.X_OK)
    assert not os.access(into / "d/a.txt", os.X_OK)
    assert list((into / "sub").iterdir()) == []
    assert (into / ".lfsconfig").read_bytes().startswith(b"[lfs]")
    assert not (into / ".git").exists()


@pytest.mark.parametrize(
    "name",
    [
        b".git",
        b".GIT",
        b".Git",
        b".git.",
        b".git ",
        b".git . .",
        b"git~1",
        b"GIT~2",
        b".git::$INDEX_ALLOCATION",
        ".g\u200cit".encode(),
        ".git\ufeff".encode(),
        b"a\\.git",
    ],
)
def test_names_that_some_file_system_takes_for_dot_git_are_refused(forge: Forge, into: Path, name: bytes) -> None:
    folder = forge.tree((REGULAR, b"config", forge.file()))
    refused(forge, into, forge.tree((DIRECTORY, name, folder)), r"\.git")
    refused(forge, into, forge.tree((DIRECTORY, b"deep", forge.tree((REGULAR, name, forge.file())))), r"\.git")


@pytest.mark.parametrize("name", [b"..", b".", b"a/b", b"", b"x\ny", b"x\x1b[31m", b"\xff\xfe", b"n" * 300])
def test_names_that_are_no_file_names_are_refused(forge: Forge, into: Path, name: bytes) -> None:
    refused(forge, into, forge.tree((REGULAR, name, forge.file())), "workload")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"README", b"readme"),
        ("é".encode(), "e\u0301".encode()),
        ("straße".encode(), b"STRASSE"),
        ("ﬁle".encode(), b"FILE"),
    ],
)
def test_names_that_are_one_file_where_case_or_composition_is_folded_are_refused_there(
    forge: Forge, into: Path, first: bytes, second: bytes
) -> None:
    files = forge.tree((REGULAR, first, forge.file(b"1")), (REGULAR, second, forge.file(b"2")))
    folder = forge.tree((REGULAR, b"x", forge.file()))
    linked = forge.tree((SYMLINK, first, forge.file(b".")), (DIRECTORY, second, folder))
    with forge.store.reader() as reader:
        for oid in (files, linked):
            with pytest.raises(RequestRejectedError, match="one file"):
                survey(reader, oid, folds=True)
    if sys.platform == "linux":
        forge.check_out(files, into)
        assert {path.name: path.read_bytes() for path in into.iterdir()} == {
            first.decode(): b"1",
            second.decode(): b"2",
        }
    else:
        refused(forge, into, files, "one file")


@pytest.mark.skipif(sys.platform != "linux", reason="names that fold alike are refused on a Mac")
def test_beside_names_that_fold_alike_a_link_is_followed_by_its_own_name(forge: Forge, into: Path) -> None:
    folder = forge.tree((REGULAR, b"x", forge.file()))
    top = ((SYMLINK, b"A", forge.file(b"d")), (SYMLINK, b"a", forge.file(b"d/../..")), (DIRECTORY, b"d", folder))
    refused(forge, into, forge.tree(*top), "leads out")
    refused(forge, into, forge.tree(*top, (REGULAR, b"A", forge.file())), "one file")


def test_the_same_name_twice_is_refused(forge: Forge, into: Path) -> None:
    refused(forge, into, forge.tree((REGULAR, b"a", forge.file()), (REGULAR, b"a", forge.file(b"y"))), "one file")


@pytest.mark.parametrize(
    "target", [b"/etc/passwd", b"..", b"../x", b"d/../../x", b"", b"x\0y", b"d/up/../../..", b"self", b"\xff"]
)
def test_links_that_leave_the_tree_or_lead_nowhere_sensible_are_refused(
    forge: Forge, into: Path, target: bytes
) -> None:
    folder = forge.tree((SYMLINK, b"up", forge.file(b"..")), (REGULAR, b"f", forge.file()))
    top = forge.tree((DIRECTORY, b"d", folder), (SYMLINK, b"self", forge.file(target)))
    refused(forge, into, top, "link")


def test_a_link_that_escapes_only_through_another_link_is_refused(forge: Forge, into: Path) -> None:
    # Read as text `a/b/shallow/../..` stays inside; followed by a kernel it does not.
    deep = forge.tree((SYMLINK, b"shallow", forge.file(b"../..")))
    top = forge.tree(
        (DIRECTORY, b"a", forge.tree((DIRECTORY, b"b", deep))), (SYMLINK, b"x", forge.file(b"a/b/shallow/../../y"))
    )
    refused(forge, into, top, "leads out")


def test_a_link_that_escapes_where_case_does_not_count_is_refused(forge: Forge, into: Path) -> None:
    # `dir` is no name here where case counts; where it does not, it is the link to the top, and `..` leaves it.
    top = forge.tree((SYMLINK, b"DIR", forge.file(b".")), (SYMLINK, b"x", forge.file(b"dir/../y")))
    refused(forge, into, top, "leads out")


def test_other_modes_are_refused(forge: Forge, into: Path) -> None:
    for mode in ("100600", "20666", "140000", "1"):
        refused(forge, into, forge.tree((mode, b"odd", forge.file())), "mode")


def test_a_bomb_of_nested_trees_ends_at_the_bound(forge: Forge, into: Path) -> None:
    oid = forge.tree(*((REGULAR, f"f{number}".encode(), forge.file()) for number in range(10)))
    for _ in range(10):  # 10**11 paths in eleven objects
        oid = forge.tree(*((DIRECTORY, f"d{number}".encode(), oid) for number in range(10)))
    refused(forge, into, oid, "more than 20000 files")


def test_a_tree_nested_too_deep_is_refused(forge: Forge, into: Path) -> None:
    oid = forge.tree((REGULAR, b"f", forge.file()))
    for _ in range(80):
        oid = forge.tree((DIRECTORY, b"d", oid))
    refused(forge, into, oid, "too deep")


def test_the_byte_bound_counts_every_path(forge: Forge, into: Path) -> None:
    big = forge.file(b"x" * 1000)
    top = forge.tree(*((REGULAR, f"f{number}".encode(), big) for number in range(10)))
    with pytest.raises(RequestRejectedError, match="more than 5000 bytes"):
        forge.check_out(top, into, CheckoutBounds(bytes=5000))
    assert sum(path.stat().st_size for path in into.iterdir()) <= 5000


def test_the_time_bound_ends_a_slow_checkout(forge: Forge, into: Path) -> None:
    top = forge.tree((REGULAR, b"f", forge.file()))
    with pytest.raises(RequestRejectedError, match="took more than"):
        forge.check_out(top, into, CheckoutBounds(wall_s=-1.0))


def test_a_tree_that_is_not_all_there_is_refused(forge: Forge, into: Path) -> None:
    refused(forge, into, forge.tree((DIRECTORY, b"d", "12" * 20)), "cannot be checked out")
    refused(forge, into, "34" * 20, "cannot be checked out")


def test_a_planted_link_in_the_way_is_not_followed(forge: Forge, into: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (into / "f").symlink_to(outside)
    with pytest.raises(OSError, match="exists"):
        forge.check_out(forge.tree((REGULAR, b"f", forge.file(b"new"))), into)
    assert outside.read_text() == "precious"


NAMES = st.sampled_from([b"a", b"b", b"A", b"..", b".git", b"c", "é".encode(), b"l"])
TARGETS = st.sampled_from([b"a", b"../a", b"b/../..", b".", b"..", b"a/b", b"/x", b"l", b"c/../../b"])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_whatever_is_written_stays_inside(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    forge = Forge()

    def grow(depth: int) -> str:
        entries = []
        for name in data.draw(st.lists(NAMES, max_size=3)):
            kind = data.draw(st.sampled_from(["file", "link", "folder"]))
            if kind == "folder" and depth < 3:
                entries.append((DIRECTORY, name, grow(depth + 1)))
            elif kind == "link":
                entries.append((SYMLINK, name, forge.file(data.draw(TARGETS))))
            else:
                entries.append((REGULAR, name, forge.file()))
        return forge.tree(*entries)

    into = tmp_path_factory.mktemp("any") / "job"
    into.mkdir()
    try:
        forge.check_out(grow(0), into)
    except RequestRejectedError:
        assert list(into.iterdir()) == []
    for path in into.rglob("*"):
        assert path.resolve().is_relative_to(into.resolve())
        assert path.name.lower() != ".git"
