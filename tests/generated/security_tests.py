"""`docs/security-tests.md`: the promises of SECURITY.md with their tests, from `tests/data/security.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/security-tests.md"
OPENING = """# Promises and their tests

[SECURITY.md](../SECURITY.md) says in sentences what is defended and what is not; here is every promise with the tests
that show it. The numbers are those of the controls there; a promise without a number protects the bus and the reader's
machine. Generated from `tests/data/security.toml` by `python -m tests.drift --write`.
"""


@dataclass(frozen=True)
class Promise:
    """One promise: the number of its control, empty for none, its words, and its tests as `path::function`."""

    control: str
    text: str
    tests: tuple[str, ...]


def promises() -> tuple[Promise, ...]:
    """Return the promises in the order of the controls."""
    data = tomllib.loads((ROOT / "tests" / "data" / "security.toml").read_text(encoding="utf-8"))
    return tuple(Promise(entry["control"], entry["text"], tuple(entry["tests"])) for entry in data["promise"])


def generate() -> dict[str, str]:
    """Return the page by its path."""
    lines = [OPENING]
    heading = None
    for promise in promises():
        name = promise.control or "Bus and readers"
        if name != heading:
            lines += [f"## {name}", ""]
            heading = name
        lines += [f"{promise.text[0].upper()}{promise.text[1:]}.", "", *(f"- `{test}`" for test in promise.tests), ""]
    return {PAGE: "\n".join(lines).rstrip() + "\n"}
