"""What a handler gets: the command, its values, and the doors it may use."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.cli.command import Command
from bridge.cli.output import Output
from bridge.system.clock import Clock


@dataclass(frozen=True)
class Invocation:
    """One call of one command."""

    command: Command
    args: argparse.Namespace
    output: Output
    clock: Clock
    environment: Mapping[str, str]
    directory: Path

    @property
    def bus_option(self) -> str | None:
        """The value of ``--bus``, None where the command has none or none was given."""
        value: str | None = getattr(self.args, "bus", None)
        return value
