"""Take out of a bundle what names a person or a machine, and refuse one in which something of it is left.

Sources are cut down before; this is the second look, over the whole text.
"""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from pathlib import Path

_PATTERNS = {
    "GPU-<uuid>": re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F-]{8,}"),
    "<uuid>": re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"),
    "<mac>": re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"),
    "<address>": re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"),
    "<mail>": re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.]+\b"),
    "<home>": re.compile(r"(?:/Users|/home)/[^/\s\"']+"),
}
_COMMON = frozenset({"root", "user", "host", "local", "localhost", "linux", "runner", "python", "test", "tests", "mac"})
"""Names that say nothing of anybody, and that a bundle holds as words."""


def names_of_this_machine() -> dict[str, str]:
    """Return what must not be in a bundle, with what stands there instead."""
    host, home = socket.gethostname(), Path.home()
    names = {str(Path(__file__).resolve().parents[2]): "<repository>", str(home): "<home>", host: "<host>"}
    names |= {host.partition(".")[0]: "<host>", getpass.getuser(): "<user>"}
    return {name: instead for name, instead in names.items() if len(name) > 2 and name.lower() not in _COMMON | {"/"}}


def cleaned(text: str, names: Mapping[str, str]) -> str:
    """Return a text without names and numbers of a machine; longest names first, since one may hold another."""
    for instead, pattern in _PATTERNS.items():
        text = pattern.sub(instead, text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", names[name], text, flags=re.IGNORECASE)
    return text


def left_in(text: str, names: Mapping[str, str]) -> list[str]:
    """Return what is private in a text, nothing where it may be committed."""
    names_left = [name for name in names if re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text, re.I)]
    return names_left + [match for pattern in _PATTERNS.values() for match in pattern.findall(text)]
