"""Prompts for a drafter of a code model: functions, docstrings and manual pages that lie on this machine.

Four tasks: complete a function from its head, explain one, change one, go on with a text. Nothing of HumanEval is
among them: a function of one of its names is left out, and so is its package.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from engine.errors import UsageError
from engine.installed_prompts import CHANGES, FENCE, PACKAGE, installed_set
from engine.training.requests import ResponseRequest

TASKS: Final = ("complete", "explain", "edit", "continue")
LEAST_LINES, MOST_LINES = 4, 40
MOST_FILE_BYTES = 200_000
MOST_PROMPT_TOKENS = 192
RESPONSE_TOKENS = 96
MANUALS: Final = Path("/usr/share/man/man1")
_SKIPPED: Final = frozenset({PACKAGE.replace("-", "_"), "test", "tests", "idlelib", "lib2to3"})


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """One function as it is written: its name, its head with the docstring, and the whole of it."""

    name: str
    head: str
    code: str
    argument: str


def functions(root: Path, barred: frozenset[str]) -> Iterator[SourceFunction]:
    """Yield the functions of the Python files below a folder, in order of their names."""
    for path in sorted(root.rglob("*.py")):
        if _SKIPPED & set(path.relative_to(root).parts) or path.stat().st_size > MOST_FILE_BYTES:
            continue
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        lines = text.splitlines()
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef) or node.name in barred or node.end_lineno is None:
                continue
            whole = lines[node.lineno - 1 : node.end_lineno]
            if not LEAST_LINES <= len(whole) <= MOST_LINES:
                continue
            documented = isinstance(node.body[0], ast.Expr) and ast.get_docstring(node) is not None
            ends = (node.body[0].end_lineno or node.lineno) if documented else node.body[0].lineno - 1
            argument = node.args.args[0].arg if node.args.args else "the result"
            head = "\n".join(lines[node.lineno - 1 : max(ends, node.lineno)])
            yield SourceFunction(node.name, head + "\n", "\n".join(whole), argument)


def manual_pages(folder: Path = MANUALS) -> Iterator[str]:
    """Yield the text of manual pages, without what formats it; none where there are none."""
    for path in sorted(folder.glob("*.gz")) if folder.is_dir() else ():
        try:
            text = gzip.decompress(path.read_bytes()).decode("utf-8", errors="ignore")
        except (OSError, EOFError):
            continue
        plain = [line for line in text.splitlines() if line and line[0] not in ".'\\"]
        if len(plain) >= LEAST_LINES:
            yield "\n".join(plain[:MOST_LINES])


def package_requests(words: Any, count: int, seed: int, roots: Sequence[Path] = ()) -> list[ResponseRequest]:
    """Return prompts of all tasks in turns, drawn by a seed.

    Args:
        words: The target's `engine.tokenizer.Tokenizer`.
        count: How many.
        seed: Of the draws.
        roots: Folders of Python files; none for the standard library and what is installed.

    Raises:
        UsageError: If HumanEval, whose names are left out, is not installed, nothing is found, or no prompt of a task
            is short enough.
    """
    barred = frozenset(
        row["text"].rpartition("def ")[2].partition("(")[0] for row in installed_set("humaneval")["prompts"]
    )
    places = list(roots) or [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    definitions = [function for place in places for function in functions(place, barred)]
    texts = ([] if roots else list(manual_pages())) or [function.head for function in definitions]
    if not definitions:
        raise UsageError(f"no functions in {', '.join(map(str, places))}; expected Python packages there")
    requests: list[ResponseRequest] = []
    misses = 0
    turns = {
        task: _turns(task, texts if task == "continue" else [each.code for each in definitions], seed) for task in TASKS
    }
    while len(requests) < count:
        task = TASKS[len(requests) % len(TASKS)]
        place, draw = next(turns[task])
        function, text = (definitions[0], texts[place]) if task == "continue" else (definitions[place], "")
        ids = _ids(words, task, function, text, draw % len(CHANGES))
        if 2 <= len(ids) <= MOST_PROMPT_TOKENS:
            requests.append(ResponseRequest(ids, RESPONSE_TOKENS, RESPONSE_TOKENS))
            misses = 0
            continue
        misses += 1
        if misses == len(texts if task == "continue" else definitions):  # all of them, and they come again
            raise UsageError(
                f"no prompt of the task {task!r} has 2 to {MOST_PROMPT_TOKENS} tokens in the target's words, with what "
                "its chat template writes; expected some. Train for another target"
            )
    return requests


def _turns(task: str, texts: Sequence[str], seed: int) -> Iterator[tuple[int, int]]:
    """Yield places of texts, each with a draw of its own, again and again in an order that only seed and text decide.

    Another package installed thus adds prompts and leaves most of the others: their answers are still found.
    """
    draws = [int.from_bytes(hashlib.sha256(f"{seed} {task} {text}".encode()).digest()[:8]) for text in texts]
    order = sorted(range(len(texts)), key=lambda place: draws[place])
    return cycle((place, draws[place]) for place in order)


def _ids(words: Any, task: str, function: SourceFunction, text: str, change: int) -> tuple[int, ...]:
    """Return the ids of one prompt; a question is a turn, all else is text to go on with."""
    if task == "complete":
        return tuple(words.encode(function.head))
    if task == "continue":
        return tuple(words.encode(text[: len(text) // 2]))
    if task == "explain":
        question = f"Explain this function in a few sentences.\n\n{FENCE}python\n{function.code}\n{FENCE}"
        return tuple(words.chat([{"role": "user", "content": question}]))
    task_text = CHANGES[change].format(name=function.name, first=function.argument)
    given = (
        f"{FENCE}python\n{function.code}\n{FENCE}\n\n{task_text} Write the whole code again and change nothing else."
    )
    return tuple(words.encode(f"{given}\n\n{FENCE}python\n"))
