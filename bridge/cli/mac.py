"""`kakeya-mac`: find the command, parse, call its handler, turn errors into exit codes.

The one error boundary of the requester's side. Imports nothing heavy: help and completion stay light.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from bridge.cli import parser
from bridge.cli.command import Command
from bridge.cli.commands import PROGRAM, find
from bridge.cli.context import Invocation
from bridge.cli.output import Output, make_output
from bridge.cli.signals import DetachedError, install
from bridge.errors import KakeyaError
from bridge.system.clock import SystemClock


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    output = make_output(sys.stdout, sys.stderr, os.environ, as_json=_wants_json(words))
    try:
        return _dispatch(words, output)
    except BrokenPipeError:
        # Whoever read stdout has enough; Python would complain again while shutting down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(words: list[str], output: Output) -> int:
    if not words or words[0] in {"-h", "--help", "help"}:
        return _help(words[1:], output)
    if words[0] in {"-V", "--version"}:
        words = ["version", *words[1:]]
    command, rest = find(words)
    if command is None and (text := parser.group_help(words[0])) is not None:
        output.stdout.write(text + "\n")
        return 0 if set(words[1:]) <= {"-h", "--help"} else 2
    if command is not None and _asks_help(rest):
        output.stdout.write(parser.command_help(command) + "\n")
        return 0
    name = words[0] if command is None else command.name
    try:
        if command is None:
            raise parser.unknown_command(words[0])
        return _call(command, rest, output)
    except DetachedError as detached:
        output.end_line()
        return detached.exit_code
    except KakeyaError as error:
        return _report(error, name, output)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the one place: a bug still ends in a code and a document
        output.end_line()
        output.stderr.write(traceback.format_exc())
        bug = KakeyaError(f"a bug: {type(error).__name__}: {error}", remedy="please report it with the lines above")
        return _report(bug, name, output)


def _call(command: Command, rest: list[str], output: Output) -> int:
    invocation = Invocation(
        command=command,
        args=parser.parse(command, rest),
        output=output,
        clock=SystemClock(),
        environment=os.environ,
        directory=Path.cwd(),
    )
    module, _, function = command.handler.partition(":")
    install()
    handler: Callable[[Invocation], int] = getattr(importlib.import_module(module), function)
    return handler(invocation)


def _report(error: KakeyaError, command: str, output: Output) -> int:
    output.say("error", f" {error.message}")
    if error.remedy is not None:
        output.say("next", f"  {error.remedy}")
    if output.json:
        from bridge.client.envelope import of_error

        output.document(of_error(error, command))
    return error.exit_code


def _help(words: list[str], output: Output) -> int:
    command, _ = find(words)
    if words and command is None:
        text = parser.group_help(words[0])
        if text is None:
            return _report(parser.unknown_command(words[0]), words[0], output)
    else:
        text = parser.overview() if command is None else parser.command_help(command)
    output.stdout.write(text + "\n")
    return 0


def _asks_help(words: list[str]) -> bool:
    return any(word in {"-h", "--help"} for word in words)


def _wants_json(words: list[str]) -> bool:
    return "--json" in words


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["PROGRAM", "main"]
