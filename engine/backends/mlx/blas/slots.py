"""The slots through which a loaded library calls functions of others, read from its dynamic section in memory.

Knows ELF and glibc's dynamic linker and nothing of matrices. A slot holds the address that a call jumps to, so it tells
which library is called whatever was loaded since, and writing it redirects every later call.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_LINK_MAP_REQUEST = 2  # RTLD_DI_LINKMAP of dlfcn.h
# Tags of the dynamic section, elf.h.
_PLT_BYTES, _STRINGS, _SYMBOLS, _RELOCATIONS, _RELOCATION_BYTES, _PLT = 2, 5, 6, 7, 8, 23
_READ, _WRITE = 1, 2


class _LinkMap(ctypes.Structure):
    _fields_ = (("base", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dynamic", ctypes.c_size_t))


class _Entry(ctypes.Structure):
    _fields_ = (("tag", ctypes.c_int64), ("value", ctypes.c_uint64))


class _Relocation(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("info", ctypes.c_uint64), ("addend", ctypes.c_int64))


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_uint8),
        ("other", ctypes.c_uint8),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Mapping:
    """A part of a file in this process's memory."""

    start: int
    end: int
    permissions: str
    path: Path


@dataclass(frozen=True)
class CallSlot:
    """Where a library keeps the address it calls for one name."""

    address: int

    def target(self) -> int:
        """Return the address that a call jumps to; inside the library itself until the linker looked the name up."""
        return ctypes.c_size_t.from_address(self.address).value

    def redirect(self, function: int) -> None:
        """Make every later call jump to ``function``, which must take the same arguments.

        Raises:
            OSError: If the page of the slot cannot be made writable.
        """
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        page = ctypes.c_void_p(self.address - self.address % page_bytes)
        mapped = mapping_at(self.address)
        # A library linked with full RELRO has its slots on a read-only page.
        locked = mapped is not None and "w" not in mapped.permissions
        if locked:
            _protect(page, page_bytes, _READ | _WRITE)
        ctypes.c_size_t.from_address(self.address).value = function
        if locked:
            _protect(page, page_bytes, _READ)


def mappings() -> Iterator[Mapping]:
    """Yield the files mapped into this process; nothing where the system does not tell."""
    if not _MAPS.exists():
        return
    for line in _MAPS.read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            start, end = (int(part, 16) for part in fields[0].split("-"))
            yield Mapping(start, end, fields[1], Path(fields[5]))


def mapping_at(address: int) -> Mapping | None:
    """Return the mapped file that an address lies in."""
    return next((found for found in mappings() if found.start <= address < found.end), None)


def slots(library: Path, names: frozenset[str]) -> dict[str, CallSlot]:
    """Return by name the slots of a loaded library; names that it does not call are left out.

    Raises:
        OSError: If the library is not loaded, or this is no 64-bit Linux.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise OSError(f"slots are read on 64-bit Linux only, this is {sys.platform}")
    base, dynamic = _link_map(library)
    table = {entry.tag: entry.value for entry in _entries(dynamic)}

    def place(tag: int) -> int:
        # glibc has added the base to these where the section is writable, other linkers have not.
        value = table[tag]
        return value if value >= base else value + base

    strings, symbols = place(_STRINGS), place(_SYMBOLS)
    found: dict[str, CallSlot] = {}
    for start, size in ((_PLT, _PLT_BYTES), (_RELOCATIONS, _RELOCATION_BYTES)):
        if start not in table or size not in table:
            continue
        count = table[size] // ctypes.sizeof(_Relocation)
        for relocation in (_Relocation * count).from_address(place(start)):
            index = relocation.info >> 32
            if index:
                symbol = _Symbol.from_address(symbols + index * ctypes.sizeof(_Symbol))
                name = ctypes.string_at(strings + symbol.name).decode("ascii", "replace")
                if name in names:
                    found.setdefault(name, CallSlot(base + relocation.offset))
    return found


def _link_map(library: Path) -> tuple[int, int]:
    """Return where a loaded library begins and where its dynamic section is."""
    handle = ctypes.CDLL(str(library), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)._handle
    found = ctypes.POINTER(_LinkMap)()
    try:
        failed = ctypes.CDLL(None).dlinfo(ctypes.c_void_p(handle), _LINK_MAP_REQUEST, ctypes.byref(found))
    except AttributeError as error:
        raise OSError("this C library has no dlinfo") from error
    if failed:
        raise OSError(f"the linker tells nothing of {library}")
    return int(found.contents.base), int(found.contents.dynamic)


def _entries(dynamic: int) -> Iterator[_Entry]:
    """Yield the entries of a dynamic section, which an entry of zeros ends."""
    while True:
        entry = _Entry.from_address(dynamic)
        if entry.tag == 0:
            return
        yield entry
        dynamic += ctypes.sizeof(_Entry)


def _protect(page: ctypes.c_void_p, page_bytes: int, flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).mprotect(page, ctypes.c_size_t(page_bytes), flags):
        raise OSError(ctypes.get_errno(), "cannot change the protection of a library's slots")
