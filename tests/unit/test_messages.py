"""A message that lists what there is says so also where there is nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.drift import ROOT

WORDS = r"\b(?:it has|it left|it wrote|it offers|known|none of|allowed|allows|takes):? "
"""What stands before the names that are left to choose from."""
NEVER_EMPTY = frozenset(
    {
        "', '.join(known)",  # the gate's profiles
        "', '.join(sorted(templates))",  # a folder without any is refused before
        "', '.join(sets)",  # the same
        "', '.join(offers)",  # a workload has a preset, by its schema
    }
)


COMMAND = re.compile(
    r"(?:\b(?:chmod \S+|chmod -R \S+|chown \S+|cp|ln -s|mkdir(?: -p)?|ssh-keygen .*-f|launchctl bootstrap \S+)|"
    r"\bgit (?:push|ls-remote|fsck)|--(?:bus|policy|state|from|global --add safe\.directory)|&& \S+ >) $"
)
"""What stands before a path, or a route that may be one, in a command that somebody pastes."""


def bare_paths(source: str) -> Iterator[str]:
    """Yield what stands unquoted behind such words: in a Mac's own folders, Application Support, there is a space."""
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        before = ""
        for part in text.values:
            shown = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
            quoted = "shlex." in shown or re.search(rf"\b{re.escape(shown)}\b.* = .*shlex\.", source)
            if shown and COMMAND.search(before) and not quoted:
                yield shown
            before += "X" if shown else str(ast.literal_eval(part))


def test_a_path_in_a_printed_command_is_quoted() -> None:
    few = re.compile(r"(?:chmod|chown|cp|ln|mkdir|ssh-keygen|launchctl|git|--[a-z]+) [^\n]*\{")
    bare = [
        f"{path.relative_to(ROOT)}: {shown}"
        for path in sorted((ROOT / "bridge").rglob("*.py"))
        if few.search(source := path.read_text("utf-8"))
        for shown in bare_paths(source)
    ]
    assert not bare


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ('f"chmod 600 {path}; then this"', ["path"]),
        ('f"chmod {mode} {path}"', ["path"]),
        ('f"chmod 600 {shlex.quote(str(path))}"', []),
        ('f"kakeya-mac init --bus {bus.route}"', ["bus.route"]),
        ('route = shlex.quote(bus.route)\nf"git push {route} :REF"', []),
        ('f"read {path}"', []),
    ],
)
def test_an_unquoted_path_is_seen(source: str, shown: list[str]) -> None:
    assert list(bare_paths(source)) == shown


def bare_lists(source: str) -> Iterator[str]:
    """Yield what is joined behind such words, without a word for nothing."""
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before = str(part.value)
                continue
            shown = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
            is_list = isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Call) and ".join(" in shown
            if is_list and re.search(f"{WORDS}$", before) and not re.search(r"\b_?[A-Z]{2}", shown):
                yield shown
            before = ""


def test_a_message_that_lists_nothing_says_that_it_is_nothing() -> None:
    few = re.compile(WORDS + r"\{")  # the other files need not be parsed
    files = [path for room in ("bridge", "engine") for path in sorted((ROOT / room).rglob("*.py"))]
    bare = [
        f"{path.relative_to(ROOT)}: {shown}"
        for path in files
        if few.search(source := path.read_text("utf-8"))
        for shown in bare_lists(source)
        if shown not in NEVER_EMPTY
    ]
    assert not bare


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("f\"it has: {', '.join(names)}\"", ["', '.join(names)"]),
        ("f\"known: {', '.join(names) or 'none'}\"", []),
        ("f\"known: {', '.join(CHOICES)}\"", []),
        ("f\"read {', '.join(names)}\"", []),
    ],
)
def test_a_list_without_a_word_for_nothing_is_seen(source: str, shown: list[str]) -> None:
    assert list(bare_lists(source)) == shown
