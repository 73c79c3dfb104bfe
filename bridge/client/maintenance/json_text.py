"""JSON texts that people wrote: a member is put in and taken out, and every other character stays as it is.

Comments and commas behind the last member are read over, as several editors allow them. Duplicate keys, numbers of
any form and escapes are kept because they are never written anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_TOKEN: Final = re.compile(
    r'(?P<space>\s+)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\]:,])|'
    r'(?P<word>[^\s{}\[\]:,"/]+)',
    re.DOTALL,
)


@dataclass(frozen=True)
class Member:
    """Where a member of an object lies in the text, from its key to the end of its value."""

    key: str
    begin: int
    value: int
    end: int


def parsed(text: str) -> Any:
    """Return the value of a text, its comments and last commas left out.

    Raises:
        ValueError: it is no JSON, or is nested too deep.
    """
    parts: list[str] = []
    for kind, word, _ in _tokens(text):
        if word in "}]" and parts and parts[-1] == ",":
            parts.pop()
        if kind not in {"space", "comment"}:
            parts.append(word)
    try:
        return json.loads(" ".join(parts))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def top(text: str) -> int:
    """Return where the value of a text that parses begins."""
    return next(_words(text, 0))[1]


def members(text: str, begin: int) -> list[Member]:
    """Return the members of the object whose brace is at a place of a text that parses."""
    members_here: list[Member] = []
    depth, key, value, last = 0, None, -1, begin
    for kind, word, at in _tokens(text, begin):
        if kind in {"space", "comment"}:
            continue
        if depth == 1 and word in ",}" and key is not None:
            members_here.append(Member(json.loads(key[0]), key[1], value, last))
            key, value = None, -1
        elif depth == 1 and kind == "text" and key is None:
            key = (word, at)
        elif depth == 1 and word != ":" and value < 0:
            value = at
        depth += (word in "{[") - (word in "}]")
        last = at + len(word)
        if depth == 0:
            break
    return members_here


def with_first(text: str, begin: int, member: str) -> str:
    """Return a text with a member put in first into the object whose brace is at a place."""
    inside = begin + 1
    around = (space(text, inside), ",") if members(text, begin) else ("", "")
    return f"{text[:inside]}{member.join(around)}{text[inside:]}"


def without(text: str, begin: int, member: Member) -> str:
    """Return a text without a member of the object whose brace is at a place, and without the comma that parted it."""
    after = next(_words(text, member.end))
    if after[0] == ",":
        end = after[1] + 1
        return text[: member.begin] + text[end + len(space(text, end)) :]
    before = [at for word, at in _words(text, begin + 1, member.begin) if word == ","]
    return (text[: before[-1]] if before else text[: member.begin]) + text[member.end :]


def space(text: str, at: int) -> str:
    """Return the space that begins at a place."""
    rest = text[at:]
    return rest[: len(rest) - len(rest.lstrip())]


def _words(text: str, begin: int, end: int | None = None) -> Iterator[tuple[str, int]]:
    for kind, word, at in _tokens(text, begin):
        if end is not None and at >= end:
            return
        if kind not in {"space", "comment"}:
            yield word, at


def _tokens(text: str, begin: int = 0) -> Iterator[tuple[str, str, int]]:
    at = begin
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"character {at} begins nothing")
        yield str(token.lastgroup), token[0], at
        at = token.end()
