"""Command line words → values, and the help texts; both from a program's table of commands.

Knows argparse and the table, nothing about what commands do.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Collection
from itertools import groupby
from typing import Final, NoReturn

from bridge.cli.table.command import Argument, Options, Program, Verb
from bridge.cli.table.values import age, duration, whole_number
from bridge.errors import UsageError, meant
from bridge.limits import REQUEST_MAX_BYTES
from bridge.run.outcomes import exit_meanings

_WIDTH = 100
_NAME_CHARS = 20
WORD_MAX_CHARS: Final = REQUEST_MAX_BYTES
"""A word that is longer fits no request, and is no name of anything."""


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of printing and leaving."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", remedy=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f"got {str(value)[:60]!r}; expected {' or '.join(choices)}")


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return one of a fixed width: argparse makes one for each argument, and asks the terminal for its width by it."""
    return argparse.HelpFormatter(prog, width=_WIDTH)


def parse(command: Verb, words: list[str]) -> Options:
    """Return what a command line gives.

    Raises:
        UsageError: a word that does not fit.
    """
    prog = f"{command.program} {command.name}"
    for longest in (len(word) for word in words):
        if longest > WORD_MAX_CHARS:
            raise UsageError(
                f"{prog}: got a word of {longest} characters; expected at most {WORD_MAX_CHARS}",
                remedy=f"{prog} --help",
            )
    parser = _Parser(prog=prog, add_help=False, allow_abbrev=False, formatter_class=_formatter)
    for argument in command.arguments:
        add_argument(parser, argument)
    namespace, unexpected = parser.parse_known_args(words)
    if unexpected:
        raise _unexpected(command, unexpected)
    for argument in command.arguments:
        given = getattr(namespace, argument.dest) if argument.positional else None
        if given == "" or (isinstance(given, list) and "" in given):  # as a path it would be this folder
            text = f"{prog}: got '' for {argument.word}; expected a text that is not empty"
            raise UsageError(text, remedy=f"{prog} --help")
    return command.options(vars(namespace))


def add_argument(parser: argparse.ArgumentParser, argument: Argument) -> argparse.Action:
    """Let a parser take an argument, and return its action."""
    if argument.kind == "flag":
        return parser.add_argument(*argument.names, action="store_true", dest=argument.dest)
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
            extra["action"] = "extend"
    if not argument.positional:
        extra["dest"] = argument.dest
    return parser.add_argument(*argument.names, metavar=argument.metavar, **extra)  # type: ignore[arg-type]


_TYPES: Final[dict[str, Callable[[str], float]]] = {"seconds": duration, "days": age, "int": whole_number}


def unknown_command(program: Program, words: list[str]) -> UsageError:
    """Return the error for words that begin with no command, or with none that `help` knows, and the nearest ones."""
    helped = words[0] == "help"
    named = words[1:] if helped else words
    if not helped and words[0].startswith("-"):
        behind = next((word for word in words if word in program.by_name), "COMMAND")
        text = f"got {words[0].partition('=')[0][:60]!r} before a command; options stand behind it"
        return UsageError(text, remedy=f"{program.name} {behind} --help")
    word = " ".join(named[:2]) if group_help(program, named[0]) else named[0]
    other = program.elsewhere.get(word.casefold())
    hint = f"did you mean {other}?" if other else meant(word, [*program.by_name, "all" if helped else "help"], most=2)
    return UsageError(f"unknown command {word[:60]!r}; {hint}", remedy=f"{program.name} --help")


def _unexpected(command: Verb, words: list[str]) -> UsageError:
    """Return the error for words that a command does not take: the nearest option for one that looks like an option."""
    prog = f"{command.program} {command.name}"
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if option is None:
        return UsageError(f"{prog}: got {words[0][:60]!r} beside all that it takes", remedy=f"{prog} --help")
    options = [name for argument in command.arguments for name in argument.names if name.startswith("--")]
    return UsageError(f"{prog}: no option {option[:60]!r}; {meant(option, options)}", remedy=f"{prog} --help")


def overview(program: Program) -> str:
    """Return the first page of the help: what most people need, and where the rest is."""
    rest = len(program.verbs) - len(program.front)
    name = program.name
    more = f"{rest} more commands and the exit codes: `{name} help all`. `{name} COMMAND --help` says more."
    return "\n".join([*_head(program), *_listed(program, program.front), "", more, *program.notes])


def everything(program: Program) -> str:
    """Return the help of the program: every command and exit code."""
    lines = [*_head(program), *_listed(program, program.by_name), "", "Exit codes:"]
    for code, meaning in exit_meanings().items():
        wrapped = textwrap.wrap(meaning, _WIDTH - 6)
        lines += [f"  {code:<4}{wrapped[0]}", *(f"      {more}" for more in wrapped[1:])]
    return "\n".join([*lines, "", *program.notes, f"`{program.name} COMMAND --help` says more."])


def _head(program: Program) -> list[str]:
    return [f"usage: {program.name} COMMAND …", "", *textwrap.wrap(program.tagline, _WIDTH)]


def _listed(program: Program, names: Collection[str]) -> list[str]:
    lines: list[str] = []
    shown = [command for command in program.verbs if command.name in names]
    for group, commands in groupby(shown, key=lambda command: command.group):
        lines += ["", f"{group}:", *(f"  {command.name:<{_NAME_CHARS}} {command.summary}" for command in commands)]
    return lines


def group_help(program: Program, prefix: str) -> str | None:
    """Return the help of commands that share a first word, or None when there are none."""
    members = [command for command in program.verbs if command.name.startswith(f"{prefix} ")]
    if not members:
        return None
    rows = (f"  {member.name:<{_NAME_CHARS}} {member.summary}" for member in members)
    return "\n".join([f"usage: {program.name} {prefix} …", "", *rows])


def command_help(command: Verb) -> str:
    """Return the help of one command."""
    usage = textwrap.wrap(
        f"usage: {command.usage()}", _WIDTH, subsequent_indent="       ", break_long_words=False,
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
    codes = ", ".join(str(code) for code in exit_codes(command))
    return "\n".join([*lines, "", f"exit codes: {codes}; see `{command.program} help all`"])


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
