"""Unite what an owner said of a bus in two places that did not know of each other.

Whatever takes rights away is taken over from either side; whatever gives them only where it is named. Knows no files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from bridge.trust.judgement import NamedKey
from bridge.trust.root import RootContent
from bridge.trust.ssh_signatures import fingerprint_of

LINE: Final = re.compile(r"(?P<names>\S+) (?P<options>\S+) (?P<key>\S+ \S+)")
_BEFORE: Final = re.compile(r',?valid-before="(?P<until>[^"]*)"')


@dataclass(frozen=True)
class Merged:
    """What two contents come to.

    Attributes:
        content: what the owner says from now on.
        left: the keys, as ``NAME=KEY``, that only the other side has and nobody named.
    """

    content: RootContent
    left: tuple[str, ...]


def merge(own: RootContent, other: RootContent, take: Collection[str] = ()) -> Merged:
    """Return what an owner's two contents come to.

    Args:
        own: what this account says; its record stays.
        other: what the bus's root says.
        take: names or keys that only the other side has and that are to count.
    """
    revoked = dict(own.revoked or {})
    for key, at in (other.revoked or {}).items():
        revoked[key] = min(at, revoked.get(key, at))
    left: list[str] = []
    runners = tuple(_runners(own, other, take, left))
    signers = tuple(_signers(own, other, take, left))
    return Merged(replace(own, runners=runners, signers=signers, revoked=revoked), tuple(left))


def _runners(own: RootContent, other: RootContent, take: Collection[str], left: list[str]) -> Iterator[NamedKey]:
    theirs = {(key.name, key.key): key for key in other.runners}
    for key in own.runners:
        twin = theirs.pop((key.name, key.key), key)
        ends = [until for until in (key.until, twin.until) if until is not None]
        yield replace(key, until=min(ends, default=None))
    for key in theirs.values():
        if {key.name, key.key}.isdisjoint(take):
            left.append(f"{key.name}={key.key}")
        else:
            yield key


def _signers(own: RootContent, other: RootContent, take: Collection[str], left: list[str]) -> Iterator[str]:
    theirs = {_use(line): line for line in other.signers}
    for line in own.signers:
        yield _with_end(line, theirs.pop(_use(line), line))
    for line in theirs.values():
        entry = LINE.fullmatch(line)
        names = [] if entry is None else [*entry["names"].split(","), fingerprint_of(entry["key"])]
        if set(names).isdisjoint(take):
            left.append(line if entry is None else f"{entry['names']}={fingerprint_of(entry['key'])}")
        else:
            yield line


def _use(line: str) -> tuple[str, str]:
    """Return the key of a line and what it may sign."""
    entry = LINE.fullmatch(line)
    if entry is None:
        return line, ""
    space = re.search(r'namespaces="([^"]*)"', entry["options"])
    return entry["key"], "" if space is None else space[1]


def _with_end(line: str, twin: str) -> str:
    """Return a line that ends when the first of both does."""
    ends = [match["until"] for text in (line, twin) if (match := _BEFORE.search(text)) is not None]
    entry = LINE.fullmatch(line)
    if not ends or entry is None:
        return line
    options = _BEFORE.sub("", entry["options"]).lstrip(",")
    end = f'valid-before="{min(ends)}"'
    return f"{entry['names']} {options},{end} {entry['key']}" if options else f"{entry['names']} {end} {entry['key']}"
