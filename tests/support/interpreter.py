"""A host's interpreter as a small script: asked about itself it answers as the real one, asked to run it does as told.

The real one is asked once in a session of tests: it reads what every installed package says of itself.
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

ASKED = """#!/bin/sh
[ "$3" = "-c" ] && exec {python} "$@"
if [ "$2" = "-c" ]; then
  kept={kept}/$(printf %s "$PWD $*" | cksum | tr -d ' ')
  [ -s "$kept" ] && exec cat "$kept"
  {{ [ "$PWD" = / ] && [ -w {kept} ]; }} || exec {python} "$@"
  {python} "$@" > "$kept.$$" && mv "$kept.$$" "$kept" && exec cat "$kept"
  exit 1
fi
"""


def write_interpreter(path: Path, work: str) -> None:
    """Write a stand-in that does the work, lines of a shell, whenever it is not asked about the installation."""
    path.write_text(ASKED.format(kept=_kept(), python=sys.executable) + work)
    path.chmod(0o755)


@cache
def _kept() -> Path:
    """Return where this process's answers are kept."""
    folder = Path(tempfile.mkdtemp(prefix="kakeya-asked-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
