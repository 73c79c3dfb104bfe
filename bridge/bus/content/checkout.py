"""Write an untrusted tree into an empty folder: every path and mode is checked before the first write.

No git runs near the folder, so filters, attributes, hooks and submodule URLs in it are plain bytes. `.lfsconfig` is one
more file, a submodule becomes an empty folder as in a plain clone. Large files are fetched only from where the host
says, after all else was found in order, and are verified before they enter the tree.
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.bus.content.large_files import Handling, LargeFiles, check_handling, pointer_in
from bridge.bus.store.interface import ObjectBoundError, Reader
from bridge.errors import BusError, RequestRejectedError
from bridge.limits import CHECKOUT_WALL_S, MIB, TREE_MAX_BYTES, TREE_MAX_ENTRIES
from bridge.system.clock import Clock
from bridge.system.gitlfs import LfsObject
from bridge.system.gitobjects import (
    DIRECTORY,
    EXECUTABLE,
    REGULAR,
    SUBMODULE,
    SYMLINK,
    ObjectFormatError,
    TreeEntry,
    parse_tree,
)

DEPTH_MAX: Final = 64
NAME_MAX_BYTES: Final = 255
PATH_MAX_BYTES: Final = 1024
LINK_MAX_BYTES: Final = 1024
LINK_HOPS_MAX: Final = 32
# Names that some file system takes for ``.git``: HFS+ ignores these characters, NTFS has short names and streams.
_IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_FILES: Final = frozenset({REGULAR, EXECUTABLE, "100664"})
_DOT_GIT = re.compile(r"(\.git|git~[0-9]+)[ .]*(:.*)?", re.IGNORECASE)


@dataclass(frozen=True)
class CheckoutBounds:
    """What a checkout may cost: entries of all kinds, bytes of all files, seconds."""

    entries: int = TREE_MAX_ENTRIES
    bytes: int = TREE_MAX_BYTES
    wall_s: float = CHECKOUT_WALL_S


@dataclass(frozen=True)
class _Planned:
    path: str
    entry: TreeEntry


@dataclass(frozen=True)
class Survey:
    """What a tree holds, once every path, mode and link of it was found in order.

    Attributes:
        plan: its entries, folders before their content.
        links: targets of symbolic links by path.
    """

    plan: tuple[_Planned, ...]
    links: Mapping[str, str]

    @property
    def twins(self) -> tuple[tuple[str, str], ...]:
        """Pairs of paths that are one file where a file system folds case or composition."""
        paths, pairs = dict[str, str](), []
        for planned in self.plan:
            first = paths.setdefault(_folded(planned.path), planned.path)
            if first != planned.path:
                pairs.append((first, planned.path))
        return tuple(pairs)

    @property
    def submodules(self) -> tuple[str, ...]:
        """The paths of folders that stay empty, as a checkout fetches no other repository."""
        return tuple(planned.path for planned in self.plan if planned.entry.mode == SUBMODULE)


def survey(reader: Reader, tree_oid: str, limits: CheckoutBounds | None = None, *, folds: bool = True) -> Survey:
    """Check every path, mode and link of a tree, as a host does before it writes any.

    Args:
        reader: its objects.
        tree_oid: the tree.
        limits: what it may hold.
        folds: whether names that differ in case or composition only are one file where it will be written.

    Raises:
        RequestRejectedError: the tree breaks a bound or holds what a checkout must not hold.
    """
    try:
        plan = tuple(_walk(reader, tree_oid, limits or CheckoutBounds()))
        twins = _check_collisions(plan, folds=folds)
        links = {
            planned.path: _text(reader.read(planned.entry.oid, "blob", LINK_MAX_BYTES))
            for planned in plan
            if planned.entry.mode == SYMLINK
        }
        # Compared folded wherever that is clear: what escapes on a Mac only is no tree to trust on Linux either.
        _check_links(links, _as_is if twins else _folded)
    except (BusError, ObjectFormatError) as error:
        raise RequestRejectedError(f"the workload cannot be checked out: {error}") from error
    return Survey(plan, links)


def check_out(
    reader: Reader,
    tree_oid: str,
    into: Path,
    clock: Clock,
    bounds: CheckoutBounds | None = None,
    *,
    large_files: Handling = "refuse",
) -> CheckoutBounds:
    """Write a tree into an empty folder and return what is left of the bounds, for another tree within the same.

    Args:
        reader: its objects.
        tree_oid: the tree.
        into: the folder.
        clock: for the time bound.
        bounds: what it may cost, large files not counted.
        large_files: where the objects of git-lfs pointers come from, or what becomes of a tree that holds pointers.

    Raises:
        RequestRejectedError: the tree breaks a bound or holds what a checkout must not hold; nothing was written,
            or, past the byte or time bound, part of it.
        PolicyRefusedError: it holds large files and the host has no place to get them from.
        InfrastructureError: a large file could not be fetched.
    """
    limits = bounds or CheckoutBounds()
    began_s = clock.steady_s()
    deadline_s = began_s + limits.wall_s
    surveyed = survey(reader, tree_oid, limits, folds=_folds_names(into))
    plan = surveyed.plan
    try:
        pointers = _write(reader, plan, surveyed.links, into, limits=limits, late=lambda: clock.steady_s() > deadline_s)
    except (BusError, ObjectFormatError) as error:
        raise RequestRejectedError(f"the workload cannot be checked out: {error}") from error
    left = CheckoutBounds(
        limits.entries - len(plan),
        limits.bytes - sum((into / planned.path).lstat().st_size for planned in plan if planned.entry.mode in _FILES),
        limits.wall_s - (clock.steady_s() - began_s),
    )
    if pointers and large_files != "leave":
        source = check_handling({path: pointer for path, (pointer, _) in pointers.items()}, large_files)
        _replace(pointers, source, into)
    return left


def _walk(reader: Reader, top: str, limits: CheckoutBounds) -> Iterator[_Planned]:
    """Yield entries, folders before their content; the bound counts paths, not objects, so a tree bomb ends here."""
    count = 0
    pending = [("", top)]
    while pending:
        folder, oid = pending.pop()
        data = reader.read(oid, "tree", 4 * MIB)
        for entry in parse_tree(data, max_entries=limits.entries):
            count += 1
            if count > limits.entries:
                raise RequestRejectedError(f"the workload has more than {limits.entries} files and folders")
            path = folder + _name(entry.name)
            if len(path.encode()) > PATH_MAX_BYTES or path.count("/") >= DEPTH_MAX:
                raise RequestRejectedError(f"a workload path is too long or too deep: {path[:80]!r}...")
            if entry.mode not in (REGULAR, EXECUTABLE, SYMLINK, DIRECTORY, SUBMODULE, "100664"):
                raise RequestRejectedError(f"workload entry {path!r} has mode {entry.mode}")
            yield _Planned(path, entry)
            if entry.mode == DIRECTORY:
                pending.append((path + "/", entry.oid))


def _name(raw: bytes) -> str:
    name = _text(raw)
    plain = _IGNORABLE.sub("", name)
    if name in ("", ".", "..") or "/" in name or len(raw) > NAME_MAX_BYTES or "\0" in name:
        raise RequestRejectedError(f"the workload holds a name that is no file name: {name[:80]!r}")
    if _DOT_GIT.fullmatch(plain) or _DOT_GIT.fullmatch(plain.replace("\\", "/").rsplit("/", 1)[-1]):
        raise RequestRejectedError(f"the workload holds {name!r}, which a file system may take for .git")
    if any(unicodedata.category(char) == "Cc" for char in name):
        raise RequestRejectedError(f"the workload holds a name with control characters: {name[:80]!r}")
    return name


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRejectedError(f"the workload holds a name or link that is not UTF-8: {raw[:80]!r}") from error


def _check_collisions(plan: Sequence[_Planned], *, folds: bool) -> bool:
    """Refuse names that are one file; return whether there are some that would be, were case or composition folded."""
    first_by_fold, paths = dict[str, str](), set[str]()
    twins = False
    for planned in plan:
        first = first_by_fold.setdefault(_folded(planned.path), planned.path)
        if planned.path in paths or (folds and first != planned.path):
            raise RequestRejectedError(
                f"the workload holds {first!r} and {planned.path!r}, which are one file on this host's file system"
            )
        paths.add(planned.path)
        twins = twins or first != planned.path
    return twins


def _folds_names(folder: Path) -> bool:
    """Return whether a folder takes names for one that differ in case or in Unicode composition, found out by trying.

    A folder that cannot be tried counts as one that does.
    """
    name = "Folds-\u00e9"
    probe = folder / name
    try:
        os.close(_create(probe, 0o600))
    except OSError:
        return True
    try:
        return any((folder / other).exists() for other in (name.swapcase(), unicodedata.normalize("NFD", name)))
    finally:
        probe.unlink()


def _folded(path: str) -> str:
    """Return a path folded in case and Unicode composition (NFC)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _as_is(path: str) -> str:
    return path


def _check_links(links: dict[str, str], key: Callable[[str], str]) -> None:
    """Follow every link as a kernel would, through other links; one that leaves the tree is refused.

    Args:
        links: targets by path.
        key: what a file system takes a path for: on a Mac a link spelt otherwise is the link, and names that fold
            alike were refused.
    """
    targets = {key(path): target for path, target in links.items()}
    for path in links:
        _resolve(path, targets, key)


def _resolve(path: str, links: Mapping[str, str], key: Callable[[str], str]) -> None:
    todo = path.split("/")[::-1]
    done: list[str] = []
    hops = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not done:
                raise RequestRejectedError(f"link {path!r} leads out of the workload")
            done.pop()
            continue
        done.append(part)
        target = links.get(key("/".join(done)))
        if target is None:
            continue
        hops += 1
        if target.startswith("/") or not target or hops > LINK_HOPS_MAX or "\0" in target:
            raise RequestRejectedError(f"link {path!r} is absolute, empty or endless")
        done.pop()
        todo.extend(target.split("/")[::-1])


def _write(
    reader: Reader,
    plan: Sequence[_Planned],
    links: Mapping[str, str],
    into: Path,
    *,
    limits: CheckoutBounds,
    late: Callable[[], bool],
) -> dict[str, tuple[LfsObject, int]]:
    """Write all entries; return the large files that pointers stand for, with their modes, by path."""
    left = limits.bytes
    pointers: dict[str, tuple[LfsObject, int]] = {}
    for planned in plan:
        if planned.entry.mode in (DIRECTORY, SUBMODULE):
            (into / planned.path).mkdir(mode=0o755)
    for planned in plan:
        if planned.entry.mode in (DIRECTORY, SUBMODULE, SYMLINK):
            continue
        if late():
            raise RequestRejectedError(f"writing the workload took more than {limits.wall_s:.0f} s")
        try:
            data = reader.read(planned.entry.oid, "blob", left)
        except ObjectBoundError as error:
            raise RequestRejectedError(f"the workload has more than {limits.bytes} bytes of files") from error
        left -= len(data)
        mode = 0o755 if planned.entry.mode == EXECUTABLE else 0o644
        pointer = pointer_in(planned.path, data)
        if pointer is not None:
            pointers[planned.path] = (pointer, mode)
        _write_file(into / planned.path, data, mode)
    for path, target in links.items():
        (into / path).symlink_to(target)
    return pointers


def _replace(pointers: dict[str, tuple[LfsObject, int]], source: LargeFiles, into: Path) -> None:
    """Put large files in the place of their pointers; links exist by now, so each path must still be its pointer.

    Raises:
        InfrastructureError: one could not be fetched; the tree is not to be used.
    """
    objects = {pointer.oid: pointer for pointer, _ in pointers.values() if pointer.size}
    with source.fetch(list(objects.values())) as files:
        for path, (pointer, mode) in pointers.items():
            (into / path).unlink()
            descriptor = _create(into / path, mode)
            with os.fdopen(descriptor, "wb") as stream:
                if pointer.size:
                    with files[pointer.oid].open("rb") as data:
                        shutil.copyfileobj(data, stream)


def _write_file(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(_create(path, mode), "wb") as stream:
        stream.write(data)


def _create(path: Path, mode: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
