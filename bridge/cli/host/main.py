"""`kakeya-runner`: what a machine's owner types.

Imports nothing heavy: `--help` is as quick as Python itself, and `exec` is started anew by every connection over ssh.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from bridge.cli.dispatch import dispatch
from bridge.cli.host.call import HostCall
from bridge.cli.screen.answer import Answer
from bridge.cli.screen.output import make_output
from bridge.cli.table.command import Options, Verb
from bridge.cli.table.runner_commands import RUNNER


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    output = make_output(sys.stdout, sys.stderr, os.environ, as_json="--json" in words)

    def make_call(command: Verb, options: Options) -> HostCall[Options]:
        return HostCall(command, options, output)

    return dispatch(RUNNER, words, output, make_call, _data)


def _data(_command: str, answer: Answer) -> object:
    """Return what a command of this program prints with --json: its data as they are, None for nothing."""
    return answer.data


if __name__ == "__main__":
    sys.exit(main())
