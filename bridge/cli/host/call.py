"""The one argument of every handler of `kakeya-runner`: the command, its values and its streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from bridge.cli.screen.output import Output
from bridge.cli.table.command import Options, Verb

Options_co = TypeVar("Options_co", bound=Options, covariant=True)


@dataclass(frozen=True)
class HostCall(Generic[Options_co]):
    """One call of one command."""

    command: Verb
    options: Options_co
    output: Output

    def close(self) -> None:
        """Let go of nothing: what a command of an owner opens, it closes."""

    def note(self, text: str) -> None:
        """Write one line of talk."""
        self.output.say("note", text)
