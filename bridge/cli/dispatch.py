"""One call of a program: its help, or a handler whose answer is printed; the place where errors become exit codes.

Knows the table of commands and the screen, nothing of what commands do. Imports nothing heavy: help stays light.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from bridge.cli.boundary import guarded
from bridge.cli.screen.answer import Answer, Talk, envelope_of, print_answer
from bridge.cli.screen.output import Output
from bridge.cli.signals import DetachedError
from bridge.cli.table import parser
from bridge.cli.table.command import Options, Program, Verb
from bridge.errors import KakeyaError, ParameterError, UsageError

_HELP: Final = frozenset({"-h", "--help"})


class Call(Protocol):
    """The one argument of a handler."""

    def close(self) -> None:
        """Let go of what the command opened, now that it has done its work."""
        ...


CallT = TypeVar("CallT", bound=Call)


def dispatch(
    program: Program,
    words: list[str],
    output: Output,
    make_call: Callable[[Verb, Options], CallT],
    document_of: Callable[[str, Answer], Any] = envelope_of,
) -> int:
    """Run one command line of a program and return its exit code; a signal detaches it.

    Args:
        program: whose commands they are.
        words: the command line without the program.
        output: its streams.
        make_call: makes what the handler gets.
        document_of: returns what a program that asked is told.
    """
    words = _as_verb(program, words)

    def act() -> int:
        text = _help_text(program, words)
        if text is not None:
            output.text(text)
            return 0
        try:
            return _handle(program, words, output, make_call, document_of)
        except DetachedError as detached:
            return print_detached(detached, program, words, output)

    def report(error: KakeyaError) -> None:
        _report(error, program, words, output)
        if output.json and document_of is envelope_of:
            from bridge.client.document.envelope import of_error

            output.document(of_error(error, _name(program, words)))

    return guarded(act, report, program.name, output.note)


def _handle(
    program: Program, words: list[str], output: Output, make_call: Callable[[Verb, Options], CallT],
    document_of: Callable[[str, Answer], Any],
) -> int:  # fmt: skip
    command, rest = program.find(words)
    if command is None:
        raise parser.unknown_command(program, words)
    call = make_call(command, parser.parse(command, rest))
    module, _, function = command.handler.partition(":")
    handler: Callable[[CallT], Answer] = getattr(importlib.import_module(module), function)
    try:
        return print_answer(output, command.name, handler(call), document_of)
    finally:
        call.close()


def print_detached(detached: DetachedError, program: Program, words: list[str], output: Output) -> int:
    """Say what a signal means where no run is being waited for yet; a request may have been sent or not."""
    message = "stopped; what was sent goes on, and the same command again goes on from there"
    lines = [Talk("detach", f" {message}")]
    answer = Answer(None, lines, detached.exit_code, reason="detached", message=message)
    return print_answer(output, _name(program, words), answer)


def _as_verb(program: Program, words: list[str]) -> list[str]:
    is_option = words and words[0] in {"-V", "--version"} and "version" in program.by_name
    return ["version", *words[1:]] if is_option else words


def _help_text(program: Program, words: list[str]) -> str | None:
    """Return what to print when help is asked for, None when a command is to run."""
    if words == ["help", "all"]:
        return parser.everything(program)
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    if not words or words[0] in _HELP:
        return parser.overview(program)
    command, rest = program.find(words)
    if command is None:
        return parser.group_help(program, words[0]) if set(words[1:]) <= _HELP else None
    return parser.command_help(command) if _HELP & set(rest) else None


def _name(program: Program, words: list[str]) -> str:
    command, _ = program.find(_as_verb(program, words))
    return command.name if command is not None else words[0] if words else ""


def _report(error: KakeyaError, program: Program, words: list[str], output: Output) -> None:
    from bridge.client.document.untrusted import clean_text

    name = _name(program, words)
    output.say("error", f" {clean_text(error.message)}")  # it may name what a stranger pushed
    if error.remedy is None and isinstance(error, ParameterError):
        error.remedy = "kakeya-mac presets show PRESET lists what each parameter takes"
    if error.remedy is None and isinstance(error, UsageError):
        error.remedy = f"{program.name} {name} --help" if name in program.by_name else f"{program.name} --help"
    if error.remedy is not None:
        output.say("next", f"  {clean_text(error.remedy)}")
