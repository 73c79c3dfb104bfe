"""`kakeya-mac`: find the command, parse, call its handler, turn errors into exit codes.

The one error boundary of the requester's side. Imports nothing heavy: help and completion stay light.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bridge.cli.boundary import guarded
from bridge.cli.front_page import front_page
from bridge.cli.mac.context import Invocation
from bridge.cli.screen.answer import Answer, Talk, print_answer
from bridge.cli.screen.output import Output, make_output
from bridge.cli.signals import DetachedError
from bridge.cli.table import parser
from bridge.cli.table.command import Options, Verb
from bridge.cli.table.commands import BY_NAME, PROGRAM, find
from bridge.errors import KakeyaError, ParameterError, UsageError
from bridge.system.clock import Clock, SystemClock

if TYPE_CHECKING:
    from bridge.cli.mac.context import Opener

_HELP = frozenset({"-h", "--help"})


@dataclass(frozen=True)
class Surroundings:
    """The streams, environment, folder and clock of one call of the program."""

    stdout: TextIO
    stderr: TextIO
    environment: Mapping[str, str]
    directory: Path
    clock: Clock
    opener: Opener | None = None


def main(words: list[str], surroundings: Surroundings | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        words: the command line without the program.
        surroundings: those of the call, None for this process's own.
    """
    around = surroundings or _surroundings()
    output = _output(words, around)
    name = _name(words)

    def act() -> int:
        shown = _help_text(words)
        if shown is None:
            return _run(words, name, output, around)
        around.stdout.write(f"{shown}\n")
        around.stdout.flush()  # a reader that has left shows here, not while Python shuts down
        return 0

    return guarded(act, lambda error: _report(error, name, output), PROGRAM, output.note)


def stop(detached: DetachedError, words: list[str]) -> int:
    """Say that a signal ended the program while no command of it ran, and return the exit code."""
    around = _surroundings()
    command, _ = find(words)
    return _detached(detached, command.name if command is not None else "", _output(words, around))


def _surroundings() -> Surroundings:
    """Return those of this process; its folder by its last name where somebody removed it."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        folder = Path(os.environ.get("PWD") or "/")
    return Surroundings(sys.stdout, sys.stderr, os.environ, folder, SystemClock())


def _output(words: list[str], around: Surroundings) -> Output:
    return make_output(
        around.stdout, around.stderr, around.environment, as_json="--json" in words, as_lines="--json-lines" in words
    )


def _help_text(words: list[str]) -> str | None:
    """Return what to print when help is asked for, None when a command is to run."""
    if words == ["help", "all"]:
        return parser.everything()
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    if not words or words[0] in _HELP:
        return front_page().rstrip("\n")
    command, rest = find(words)
    if command is None:
        return parser.group_help(words[0]) if set(words[1:]) <= _HELP else None
    return parser.command_help(command) if _HELP & set(rest) else None


def _as_verb(words: list[str]) -> list[str]:
    return ["version", *words[1:]] if words and words[0] in {"-V", "--version"} else words


def _name(words: list[str]) -> str:
    command, _ = find(_as_verb(words))
    return command.name if command is not None else words[0] if words else ""


def _run(words: list[str], name: str, output: Output, around: Surroundings) -> int:
    """Run a command; a signal detaches it."""
    words = _as_verb(words)
    command, rest = find(words)
    try:
        return _call(command, words, rest, output, around)
    except DetachedError as detached:
        return _detached(detached, name, output)


def _call(command: Verb | None, words: list[str], rest: list[str], output: Output, around: Surroundings) -> int:
    if command is None:
        helped = words[0] == "help"
        asked = words[1:] if helped else words
        raise parser.unknown_command(" ".join(asked[:2]) if parser.group_help(asked[0]) else asked[0], helped=helped)
    invocation: Invocation[Options] = Invocation(
        command=command,
        options=parser.parse(command, rest),
        output=output,
        clock=around.clock,
        environment=around.environment,
        directory=around.directory,
        opener=around.opener,
    )
    module, _, function = command.handler.partition(":")
    handler: Callable[[Invocation[Options]], Answer] = getattr(importlib.import_module(module), function)
    try:
        return print_answer(output, command.name, handler(invocation))
    finally:
        invocation.close()


def _detached(detached: DetachedError, command: str, output: Output) -> int:
    """Say what a signal means where no run is being waited for yet; a request may have been sent or not."""
    message = "stopped; what was sent goes on, and the same command again goes on from there"
    lines = [Talk("detach", f" {message}")]
    return print_answer(output, command, Answer(None, lines, detached.exit_code, reason="detached", message=message))


def _report(error: KakeyaError, command: str, output: Output) -> int:
    from bridge.client.document.untrusted import clean_text

    output.say("error", f" {clean_text(error.message)}")  # it may name what a stranger pushed
    if error.remedy is None and isinstance(error, ParameterError):
        error.remedy = f"{PROGRAM} presets show PRESET lists what each parameter takes"
    if error.remedy is None and isinstance(error, UsageError):
        error.remedy = f"{PROGRAM} {command} --help" if command in BY_NAME else f"{PROGRAM} --help"
    if error.remedy is not None:
        output.say("next", f"  {clean_text(error.remedy)}")
    if output.json:
        from bridge.client.document.envelope import of_error

        output.document(of_error(error, command))
    return error.exit_code
