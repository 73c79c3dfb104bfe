"""Spaces of request branches: what may stand before ``mac-bridge`` in the names that a bus takes requests on.

Hosts of cloud agents let each agent push below a space of its own only. A pattern names its space letter by letter:
one with a glob before ``mac-bridge`` would list everybody's branches and go past a host's own rules for them. Knows no
remote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from bridge.errors import UsageError

AGENT_SPACES: Final = ("AgentMemory", "claude", "copilot", "cursor", "codex")
DEFAULT_PATTERNS: Final = ("mac-bridge/*", *(f"{space}/mac-bridge-*" for space in AGENT_SPACES))
_EXPECTED: Final = "expected the first part of an agent's branch names, such as 'claude', of letters, digits, . _ and -"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_PATTERN = re.compile(r"(?:(?P<space>[^*?\[\]]+)/)?mac-bridge[/-]\*")
_PARTS_MAX: Final = 4
_TAKEN: Final = frozenset({"kakeya", "mac-bridge"})  # a bus's own: refs/heads/kakeya/, and the pattern mac-bridge/*
_OTHERS: Final = frozenset({"HEAD", "main", "master", "trunk", "develop", "refs", "heads"})
_AGENT_BRANCH = re.compile(r"(?P<space>[^/]+)/.*?(?P<suffix>-[0-9a-z]{4,8})?")


def pattern_of(space: str) -> str:
    """Return the pattern of the request branches in a space.

    Args:
        space: what stands before the slash, such as ``claude`` or ``bots/claude``.

    Raises:
        UsageError: no such space, one that a bus or other people's branches take, or one that would hold a glob.
    """
    parts = space.removesuffix("/").split("/")
    shown = repr(space[:80])
    if parts[0] in _OTHERS:
        raise UsageError(f"got {shown}, the name of a branch or of git's own: {_EXPECTED}")
    if parts[0] in _TAKEN:
        raise UsageError(f"got {shown}, which lies inside a prefix that every bus has already: {_EXPECTED}")
    if len(parts) > _PARTS_MAX or not all(_is_part(part) for part in parts):
        raise UsageError(f"got {shown}: {_EXPECTED}")
    return f"{'/'.join(parts)}/mac-bridge-*"


def check_patterns(patterns: Iterable[str]) -> None:
    """Refuse patterns that could catch branches which are nobody's requests, or of which one lies inside another.

    Raises:
        UsageError: the message names the pattern.
    """
    heads: list[str] = []
    for pattern in patterns:
        match = _PATTERN.fullmatch(pattern)
        if match is None:
            raise UsageError(
                f"request branches {pattern[:80]!r} could catch other people's; expected 'SPACE/mac-bridge-*'"
            )
        if match["space"] is not None:
            pattern_of(match["space"])
        head = pattern.removesuffix("*")
        if (other := next((it for it in heads if it.startswith(head) or head.startswith(it)), None)) is not None:
            raise UsageError(f"request branches {pattern!r} and '{other}*' lie inside each other; keep one of them")
        heads.append(head)


def template_of(branch: str | None) -> str | None:
    """Return the branch template of whoever may push below the first part of a branch only, None where it has none.

    Some hosts fix the end of the name too, so an end like ``-1f2e`` is taken along.
    """
    match = _AGENT_BRANCH.fullmatch(branch or "")
    if match is None or not _is_part(match["space"]) or match["space"] in _TAKEN | _OTHERS:
        return None
    return f"{match['space']}/mac-bridge-{{preset}}-{{id}}{match['suffix'] or ''}"


def _is_part(text: str) -> bool:
    return _PART.fullmatch(text) is not None and ".." not in text and not text.endswith((".", ".lock"))
