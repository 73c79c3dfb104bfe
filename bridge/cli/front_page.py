"""The first page of the help of `kakeya-mac`, read from a file: nothing is imported to show it.

The file is generated from the table of commands.
"""

from __future__ import annotations

import os
import sys

from bridge.cli.streams import READER_LEFT, discard_stdout


def front_page() -> str:
    """Return the page."""
    with open(os.path.join(os.path.dirname(__file__), "table", "overview.txt"), encoding="utf-8") as file:  # noqa: PTH120
        return file.read()


def is_asked(words: list[str]) -> bool:
    """Return whether a command line asks for this page."""
    return words in ([], ["-h"], ["--help"], ["help"])


def show() -> int:
    """Print the page and return the exit code."""
    try:
        sys.stdout.write(front_page())
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
        return READER_LEFT
    except OSError as error:  # without the program's own words: they are not loaded
        discard_stdout()
        print(f"error  {error.strerror}", file=sys.stderr)
        return 3
    return 0
