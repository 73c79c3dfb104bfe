"""Command line words → values, and the help texts; both from the table of commands.

Knows argparse and the table, nothing about what commands do.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Collection
from typing import Final, NoReturn

from bridge.cli.table.command import Argument, Options, Verb
from bridge.cli.table.commands import BY_NAME, COMMANDS, FRONT, GROUPS, PROGRAM, TAGLINE
from bridge.cli.table.values import age, duration, whole_number
from bridge.errors import UsageError, meant
from bridge.limits import REQUEST_MAX_BYTES
from bridge.run.outcomes import exit_meanings

_WIDTH = 100
WORD_MAX_CHARS: Final = REQUEST_MAX_BYTES
"""A word that is longer fits no request, and is no name of anything."""


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of printing and leaving."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", remedy=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(one) for one in action.choices]
            raise argparse.ArgumentError(action, f"got {str(value)[:60]!r}; expected {' or '.join(known)}")


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return one of a fixed width: argparse makes one for each argument, and asks the terminal for its width by it."""
    return argparse.HelpFormatter(prog, width=_WIDTH)


def parse(command: Verb, words: list[str]) -> Options:
    """Return what a command line gives.

    Raises:
        UsageError: a word that does not fit.
    """
    for longest in (len(word) for word in words):
        if longest > WORD_MAX_CHARS:
            raise UsageError(
                f"{PROGRAM} {command.name}: got a word of {longest} characters; expected at most {WORD_MAX_CHARS}",
                remedy=f"{PROGRAM} {command.name} --help",
            )
    parser = _Parser(prog=f"{PROGRAM} {command.name}", add_help=False, allow_abbrev=False, formatter_class=_formatter)
    for argument in command.arguments:
        _add(parser, argument)
    found, unexpected = parser.parse_known_args(words)
    if unexpected:
        raise _unexpected(command, unexpected)
    for argument in command.arguments:
        given = getattr(found, argument.dest) if argument.positional else None
        if given == "" or (isinstance(given, list) and "" in given):  # as a path it would be this folder
            word = argument.metavar or argument.dest.upper()
            raise UsageError(
                f"{PROGRAM} {command.name}: got '' for {word}; expected a text that is not empty",
                remedy=f"{PROGRAM} {command.name} --help",
            )
    return command.options(vars(found))


def _add(parser: argparse.ArgumentParser, argument: Argument) -> None:
    if argument.kind == "flag":
        parser.add_argument(*argument.names, action="store_true", dest=argument.dest)
        return
    extra: dict[str, object] = {"default": argument.default}
    if argument.choices:
        extra["choices"] = argument.choices
    if argument.number:
        extra["type"] = _TYPES[argument.number]
    if argument.kind == "repeat":
        extra["action"] = "append"
    elif argument.kind in {"optional", "many"}:
        extra["nargs"] = "?" if argument.kind == "optional" else "+"
    if not argument.positional:
        extra["dest"] = argument.dest
    parser.add_argument(*argument.names, metavar=argument.metavar, **extra)  # type: ignore[arg-type]


_TYPES: Final[dict[str, Callable[[str], float]]] = {"seconds": duration, "days": age, "int": whole_number}


# What other programs call it.
_ELSEWHERE: Final = {
    "ps": "ls", "queue": "ls", "jobs": "ls", "squeue": "ls", "list": "ls", "submit": "run", "sbatch": "run",
    "exec": "run", "send": "run", "kill": "cancel", "stop": "cancel", "scancel": "cancel", "watch": "attach",
    "follow": "attach", "show": "status", "info": "status", "download": "fetch", "get": "fetch", "result": "fetch",
    "diff": "compare", "clean": "gc", "setup": "init", "connect": "init",
}  # fmt: skip


def unknown_command(word: str, *, helped: bool = False) -> UsageError:
    """Return the error for a word that is no command, or none that `help` knows, with the nearest ones."""
    other = _ELSEWHERE.get(word.casefold())
    hint = f"did you mean {other}?" if other else meant(word, [*BY_NAME, "all" if helped else "help"], most=2)
    return UsageError(f"unknown command {word[:60]!r}; {hint}", remedy=f"{PROGRAM} --help")


def _unexpected(command: Verb, words: list[str]) -> UsageError:
    """Return the error for words that a command does not take: the nearest option for one that looks like an option."""
    prog = f"{PROGRAM} {command.name}"
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if option is None:
        return UsageError(f"{prog}: got {words[0][:60]!r} beside all that it takes", remedy=f"{prog} --help")
    known = [name for one in command.arguments for name in one.names if name.startswith("--")]
    return UsageError(f"{prog}: no option {option[:60]!r}; {meant(option, known)}", remedy=f"{prog} --help")


def overview() -> str:
    """Return the first page of the help: what most people need, and where the rest is."""
    rest = len(COMMANDS) - len(FRONT)
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND …", "", *textwrap.wrap(TAGLINE, _WIDTH), *_listed(FRONT), "",
            f"{rest} more commands and the exit codes: `{PROGRAM} help all`. `{PROGRAM} COMMAND --help` says more.",
            "An ID is a unique prefix or suffix of a run id, or @last. stdout is data, stderr is talk; --json.",
        ]
    )  # fmt: skip


def everything() -> str:
    """Return the help of the program: every command and exit code."""
    lines = [f"usage: {PROGRAM} COMMAND …", "", *textwrap.wrap(TAGLINE, _WIDTH), *_listed(BY_NAME)]
    lines += ["", "Exit codes:"]
    for code, meaning in exit_meanings().items():
        wrapped = textwrap.wrap(meaning, _WIDTH - 6)
        lines += [f"  {code:<4}{wrapped[0]}", *(f"      {more}" for more in wrapped[1:])]
    lines += [
        "",
        "stdout is data, stderr is talk; every command that answers takes --json. An ID is a unique prefix or",
        f"suffix of a run id, or @last. `{PROGRAM} COMMAND --help` says more.",
    ]
    return "\n".join(lines)


def _listed(names: Collection[str]) -> list[str]:
    lines: list[str] = []
    for group in GROUPS:
        shown = [command for command in COMMANDS if command.group == group and command.name in names]
        lines += ["", f"{group}:", *(f"  {command.name:<15} {command.summary}" for command in shown)]
    return lines


def group_help(prefix: str) -> str | None:
    """Return the help of commands that share a first word, or None when there are none."""
    members = [command for command in COMMANDS if command.name.startswith(f"{prefix} ")]
    if not members:
        return None
    return "\n".join([f"usage: {PROGRAM} {prefix} …", "", *(f"  {one.name:<13} {one.summary}" for one in members)])


def command_help(command: Verb) -> str:
    """Return the help of one command."""
    usage = textwrap.wrap(
        f"usage: {command.usage(PROGRAM)}", _WIDTH, subsequent_indent="       ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    lines = [*usage, "", f"{command.summary[0].upper()}{command.summary[1:]}."]
    if command.details:
        lines += ["", *textwrap.wrap(command.details, _WIDTH)]
    if command.arguments:
        lines += ["", "arguments:"]
        for argument in command.arguments:
            lines += _argument_help(argument)
    if command.examples:
        lines += ["", "examples:", *(f"  {example}" for example in command.examples)]
    lines += ["", "exit codes: " + ", ".join(str(code) for code in exit_codes(command)) + f"; see `{PROGRAM} --help`"]
    return "\n".join(lines)


def exit_codes(command: Verb) -> tuple[int, ...]:
    """Return every code a command can end in, in order."""
    return tuple(sorted({*command.exit_codes, 2, 3, 70}))


def _argument_help(argument: Argument) -> list[str]:
    word = argument.metavar or ("|".join(argument.choices) if argument.choices else argument.dest.upper())
    head = word if argument.positional else ", ".join(argument.names)
    if not argument.positional and argument.kind != "flag":
        head += f" {word}"
    text = argument.help
    if argument.default is not None:
        text += f" (default: {argument.default})"
    wrapped = textwrap.wrap(text, _WIDTH - 30)
    first = f"  {head:<27} {wrapped[0]}" if len(head) <= 27 else f"  {head}\n{'':<30}{wrapped[0]}"
    return [first, *(f"{'':<30}{more}" for more in wrapped[1:])]
