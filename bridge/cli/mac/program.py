"""`kakeya-mac`: the requester's program, its streams, its folder and its clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from bridge.cli.dispatch import dispatch, print_detached
from bridge.cli.mac.context import Invocation
from bridge.cli.screen.output import Output, make_output
from bridge.cli.signals import DetachedError
from bridge.cli.table.command import Options, Verb
from bridge.cli.table.commands import MAC
from bridge.system.clock import Clock, SystemClock

if TYPE_CHECKING:
    from bridge.cli.mac.context import Opener


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

    def make_call(command: Verb, options: Options) -> Invocation[Options]:
        return Invocation(
            command, options, output, around.clock, around.environment, around.directory, around.opener
        )  # fmt: skip

    return dispatch(MAC, words, output, make_call)


def stop(detached: DetachedError, words: list[str]) -> int:
    """Say that a signal ended the program while no command of it ran, and return the exit code."""
    return print_detached(detached, MAC, words, _output(words, _surroundings()))


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
