"""Read and write a result tree as one compressed file, as results are committed: ``NAME.tar.xz``.

Reading believes nothing: regular files under plain relative names only, within the bounds of a result tree, and a
decoder with a memory limit, since a header may ask for a dictionary of 4 GiB. Nothing is written to disk.

Headers are read one by one and not by `tarfile.open`. That follows extension headers before a caller sees them: it
calls itself for each (a chain of them ends in `RecursionError`), copies global ones for every member (gigabytes from a
small file), and raises `ValueError` where one is malformed. `pack` writes none of them.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from bridge.bus.tree import Tree, check_path
from bridge.errors import IntegrityError
from bridge.limits import MIB, RESULT_MAX_BYTES, RESULT_MAX_FILES

SUFFIX: Final = ".tar.xz"
_DECODER_MAX_BYTES: Final = 80 * MIB  # the largest preset of xz needs 65 MiB
_OVERHEAD_BYTES: Final = 2 * tarfile.BLOCKSIZE  # of a member at most: its header and its padding
_TAR_MAX_BYTES: Final = RESULT_MAX_BYTES + RESULT_MAX_FILES * _OVERHEAD_BYTES + tarfile.RECORDSIZE
_BLOCK_BYTES: Final = 65_536
_REMEDY: Final = "make it again with `kakeya-mac fetch ID --pack FILE`"


def is_packed(path: Path) -> bool:
    """Return whether a path names a packed result."""
    return path.name.endswith(SUFFIX) and path.is_file()


def pack(tree: Tree) -> bytes:
    """Return a result tree as one file; the same files give the same bytes.

    Files are sorted by name and carry no time, owner or mode of a machine.

    Raises:
        IntegrityError: a name is longer than the plain format holds.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(tree.files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            try:
                archive.addfile(member, io.BytesIO(data))
            except ValueError as error:
                raise IntegrityError(
                    f"the result holds a file named {name[:120]!r}, which is too long to be packed: at most "
                    f"{tarfile.LENGTH_NAME} bytes behind a slash and {tarfile.LENGTH_PREFIX} before it"
                ) from error
    return lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def read_packed(path: Path) -> Tree:
    """Return the result tree in a file that `pack` made, or another archive of the same form.

    Raises:
        IntegrityError: damaged, too large, or with anything but regular files under plain relative names.
    """
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    for name, data in _members(path, _decoded(path)):
        if name in files:
            raise _refusal(path, f"it holds {name!r} twice")
        files[name] = data
        folders.update(str(folder) for folder in PurePosixPath(name).parents)
    if twofold := sorted(folders & files.keys()):
        raise _refusal(path, f"{twofold[0]!r} is both a file and a folder")
    return Tree(files)


def _decoded(path: Path) -> bytearray:
    """Return the archive inside, bounded while it is decoded."""
    decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_DECODER_MAX_BYTES)
    plain = bytearray()
    with path.open("rb") as file:
        while not decoder.eof:
            block = file.read(_BLOCK_BYTES) if decoder.needs_input else b""
            if decoder.needs_input and not block:
                raise _refusal(path, "it ends too early")
            try:
                plain += decoder.decompress(block, max_length=_TAR_MAX_BYTES + 1 - len(plain))
            except (lzma.LZMAError, MemoryError) as error:
                raise _refusal(path, f"it cannot be decoded: {error}") from error
            if len(plain) > _TAR_MAX_BYTES:
                raise _refusal(path, f"it holds more than {RESULT_MAX_BYTES} bytes, the bound of a result")
        if decoder.unused_data or file.read(1):
            raise _refusal(path, "something follows its end")
    return plain


def _members(path: Path, plain: bytearray) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of each file; stop at the first that a result cannot hold."""
    start = number = total = 0
    while (header := plain[start : start + tarfile.BLOCKSIZE]) != bytes(tarfile.BLOCKSIZE):
        if not header:
            raise _refusal(path, "its archive ends too early")
        try:
            member = tarfile.TarInfo.frombuf(bytes(header), "utf-8", "strict")
        except (tarfile.TarError, UnicodeDecodeError) as error:
            raise _refusal(path, f"its archive is damaged: {error}") from error
        number += 1
        if number > RESULT_MAX_FILES:
            raise _refusal(path, f"it holds more than {RESULT_MAX_FILES} files, the bound of a result")
        if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE}:
            raise _refusal(path, f"{member.name[:120]!r} is no regular file; a result tree holds nothing else")
        check_path(member.name)
        total += max(0, member.size)
        if total > RESULT_MAX_BYTES:
            raise _refusal(path, f"it holds more than {RESULT_MAX_BYTES} bytes, the bound of a result")
        start += tarfile.BLOCKSIZE
        data = bytes(plain[start : start + member.size])
        if len(data) != member.size:
            raise _refusal(path, f"{member.name!r} ends too early")
        yield member.name, data
        start += -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    if plain.count(0, start) != len(plain) - start:
        raise _refusal(path, "something follows its end")


def _refusal(path: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{path} is no packed result: {why}", remedy=_REMEDY)
