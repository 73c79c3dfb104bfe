"""The parser of each verb: what is wrong with a command line is one line, with the command that says more."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

WRONG_COMMAND_LINE = 2


class VerbParser(argparse.ArgumentParser):
    """As argparse's, and an error does not print all options above it."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end the program.

        Raises:
            SystemExit: always.
        """
        print(f"error: {self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(WRONG_COMMAND_LINE)
