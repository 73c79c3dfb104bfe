"""Every refusal of the bridge with its words, its place and what to do, read from the source and the tables.

The words are those of the calls that refuse: a changed message changes the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Final

from bridge.gate.registry import rules
from bridge.run.outcomes import OUTCOMES, exit_meanings
from tests.drift import ROOT

PAGE: Final = "docs/why-refused.md"
HEAD: Final = """# Why was it refused?

Generated. A refusal names its cause and, in its line `next`, what to do. Find its words here, or start from the exit
code. `…` stands for what differs from run to run; behind → stands what to do where the words do not say it.

## Exit codes

A run ends for one reason, `outcome.reason`, the strongest first where several are true. The command that waits for it
ends in the reason's code (`bridge/run/outcomes.py:OUTCOMES`); an error before or beside a run ends in the code of its
class (`bridge/errors.py:KakeyaError`). A ↻ marks what may end differently when the same request is sent again. What a
remote refuses stands in [your git host](guides/git-hosts.md#what-an-error-of-a-remote-means).

| code | reason | meaning |
|---|---|---|
"""
GATE: Final = """
## By the gate

A claim is `quotable`, `measured` (not yet, because …) or `refused` (because …). The reason ends in the code of a check.
[The gate's page](gate.md) says of each code what must hold and what to do, as `kakeya-mac gate explain CODE` does;
`kakeya-mac gate explain CLAIM ID` says what a claim of a run lacks.

| a check fails | then |
|---|---|
"""


@dataclass(frozen=True)
class Kind:
    """One way to be refused.

    Attributes:
        name: the class that says it.
        title: a heading.
        about: what it means, and to whom it happens.
    """

    name: str
    title: str
    about: str


KINDS: Final = (
    Kind("PolicyRefusedError", "By the host's owner", "Exit code 7. Nothing ran. Only the owner can change it."),
    Kind("NotTaken", "Not taken now", "No end: the request waits until it expires, and `kakeya-mac status` says why."),
    Kind("NoRunnerError", "Nobody to take it", "Exit code 3, said before anything is sent."),
    Kind(
        "SandboxUnavailableError",
        "By the host's sandbox",
        "Exit code 3. Nothing ran: a run is confined, or there is none.",
    ),
    Kind("ParameterError", "By the preset's bounds", "Exit code 2. `kakeya-mac presets show PRESET` prints them."),
    Kind(
        "RequestRejectedError",
        "As malformed",
        "Exit code 2. What a tree, a preset or a second sending is refused for; and bytes that no `kakeya-mac` sends.",
    ),
)


NAMES: Final = frozenset(kind.name for kind in KINDS)


@dataclass(frozen=True)
class Refusal:
    """One call that refuses.

    Attributes:
        kind: the class that is called.
        path: the file it is in.
        words: its message, with … for what differs.
        remedy: what to do, None where the message says it.
    """

    kind: str
    path: str
    words: str
    remedy: str | None


def generate() -> dict[str, str]:
    """Return the page by path."""
    parts = [HEAD, *_reasons(), "\nWhat is not about the end of one run:\n\n", *_further_codes()]
    parts += [text for kind in KINDS for text in _section(kind)]
    parts += [GATE, *_checks()]
    return {PAGE: "".join(parts)}


def _reasons() -> Iterator[str]:
    for reason, row in OUTCOMES.items():
        following = "" if row.remedy is None else f" → `{row.remedy}`"
        yield f"| {row.exit_code} | `{reason}` | {row.meaning}{' ↻' if row.retryable else ''}{following} |\n"


def _further_codes() -> Iterator[str]:
    """Yield what codes mean beside the reasons for which runs end."""
    of_runs = {row.meaning for row in OUTCOMES.values()}
    for code, meanings in exit_meanings().items():
        further = "; ".join(meaning for meaning in _apart(meanings, of_runs))
        if further:
            yield f"- {code}: {further}\n"


def _apart(meanings: str, of_runs: Collection[str]) -> Iterator[str]:
    for meaning in of_runs:
        meanings = meanings.replace(meaning, "")
    yield from (meaning for part in meanings.split("; ") if (meaning := part.strip("; ")))


@cache
def refusals() -> tuple[Refusal, ...]:
    """Return every call of the bridge that refuses and whose words are its own, by file and line."""
    calls: list[Refusal] = []
    for path in sorted((ROOT / "bridge").rglob("*.py")):
        text = path.read_text("utf-8")
        if any(name in text for name in NAMES):
            place = path.relative_to(ROOT).as_posix()
            calls += refusals_of(ast.parse(text), place)
    return tuple(dict.fromkeys(calls))


def refusals_of(module: ast.Module, path: str) -> Iterator[Refusal]:
    """Yield the refusals of a module by line."""
    scopes = dict(_scopes(module, ""))
    texts: Texts = {}
    for _ in range(2):  # a name may stand for what a function returns, which is read below it
        _read_texts(scopes, texts)
    calls = [node for node in scopes if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if not isinstance(call.func, ast.Name) or call.func.id not in NAMES or not call.args:
            continue
        words = _template(call.args[0], texts, scopes[call])
        if words is not None and any(char.isalpha() for char in words):
            given = next((word.value for word in call.keywords if word.arg == "remedy"), None)
            remedy = None if given is None else _template(given, texts, scopes[call])
            yield Refusal(call.func.id, path, words, remedy)


Texts = dict[tuple[str, str], list[str]]
"""What (function, name) may stand for: variables, arguments of functions, and, outside of any, what these return."""


def _scopes(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield every node with the name of the function that it is in, which is empty outside of any."""
    yield node, scope
    inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope
    for child in ast.iter_child_nodes(node):
        yield from _scopes(child, inner)


def _read_texts(scopes: Mapping[ast.AST, str], texts: Texts) -> None:
    functions = {node.name: node for node in scopes if isinstance(node, ast.FunctionDef)}
    for node, scope in scopes.items():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                _note(texts, scope, name, _template(value, texts, scope))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                _note(texts, scope, name, _template(value, texts, scope))
            case ast.Return(value=ast.expr() as value):
                _note(texts, "", scope, _template(value, texts, scope))
            case ast.Call(func=ast.Name(id=name), args=given) if name in functions:
                for argument, value in zip(functions[name].args.args, given, strict=False):
                    _note(texts, name, argument.arg, _template(value, texts, scope))


def _note(texts: Texts, scope: str, name: str, words: str | None) -> None:
    if words is not None and words not in texts.setdefault((scope, name), []):
        texts[scope, name].append(words)


def _template(node: ast.expr, texts: Texts, scope: str) -> str | None:
    """Return what a text comes to, with … for what is computed; None for anything but a text."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first = _template(left, texts, scope)
            return None if first is None else f"{first}{_template(right, texts, scope) or '…'}"
        case ast.IfExp(body=body, orelse=other):
            both = [words for words in (_template(body, texts, scope), _template(other, texts, scope)) if words]
            return " / ".join(both) or None
        case ast.Name(id=name):
            return " / ".join(texts.get((scope, name)) or texts.get(("", name), [])) or None
        case ast.Call(func=ast.Name(id=name)):
            return " / ".join(texts.get(("", name), [])) or None
        case _:
            return None


UNSENT: Final = "- … refusals of a form, each with what was got and expected → upgrade the older side, compare clocks"
"""What stands for a file's refusals of bytes that no `kakeya-mac` of the host's version sends."""
FORMS: Final = frozenset({"bridge/request/parse.py", "bridge/request/cancel.py"})


def _section(kind: Kind) -> Iterator[str]:
    yield f"\n## {kind.title}\n\n{kind.about}\n"
    own = [refusal for refusal in refusals() if refusal.kind == kind.name]
    for path, group in groupby(own, key=lambda refusal: refusal.path):
        yield f"\n[{path}](../{path})\n\n"
        if path in FORMS:
            yield f"{UNSENT.replace('…', str(len(list(group))))}\n"
            continue
        for refusal in group:
            remedy = "" if refusal.remedy is None else f" → {_plain(refusal.remedy)}"
            yield f"- {_plain(refusal.words)}{remedy}\n"


def _plain(text: str) -> str:
    """Return a text as one that no markup is read in."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", " ".join(text.split()))


def _checks() -> Iterator[str]:
    """Yield the checks by what becomes of a run that breaks them."""
    for severity, then in (
        ("reject", "the run is rejected: exit code 1"),
        ("violation", "the claims that need its premise are not yet quotable"),
    ):
        codes = [rule.code for rule in rules().values() if rule.severity == severity]
        links = " ".join(f"[{code}](gate.md#{code.lower()})" for code in sorted(codes))
        yield f"| {links} | {then} |\n"
