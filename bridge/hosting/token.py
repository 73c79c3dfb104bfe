"""Find an API token without ever showing it.

First hit wins: GH_TOKEN, GITHUB_TOKEN, the file that KAKEYA_GITHUB_TOKEN_FILE names, `gh auth token`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bridge.errors import HostingError
from bridge.system import process

VARIABLES = ("GH_TOKEN", "GITHUB_TOKEN")
FILE_VARIABLE = "KAKEYA_GITHUB_TOKEN_FILE"
ASK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Token:
    """A token and where it was found; its text is in no repr and in no message."""

    text: str = field(repr=False)
    source: str


def find_token(environ: Mapping[str, str] | None = None, ask: Callable[[], str | None] | None = None) -> Token | None:
    """Return a token, or None when there is none.

    Args:
        environ: variables to look into, the process's own by default.
        ask: how to ask the `gh` command, None for the real one.

    Raises:
        HostingError: the token file is readable by others, or cannot be read.
    """
    variables = os.environ if environ is None else environ
    for name in VARIABLES:
        if variables.get(name):
            return Token(variables[name], name)
    if variables.get(FILE_VARIABLE):
        return read_token_file(Path(variables[FILE_VARIABLE]), FILE_VARIABLE)
    answer = (ask or _ask_gh)()
    return Token(answer, "gh auth token") if answer else None


def read_token_file(path: Path, source: str | None = None) -> Token:
    """Return the token of a file that only its owner can read.

    Raises:
        HostingError: others can read it, it cannot be read, or it is empty.
    """
    text = _read(path)
    if not text or any(char.isspace() or not char.isprintable() for char in text):
        raise HostingError(f"{path} holds no token", remedy="write the token, and nothing else, into it")
    return Token(text, source or str(path))


def _read(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise HostingError(
                f"{path} is readable by others (mode {stat.S_IMODE(mode):o}, expected 600)",
                remedy=f"chmod 600 {shlex.quote(str(path))}",
            )
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise HostingError(f"{path} holds no token", remedy="write the token, and nothing else, into it") from error
    except OSError as error:
        raise HostingError(
            f"cannot read the token file {path}: {error.strerror}", remedy="name a file that holds a token"
        ) from error


def _ask_gh() -> str | None:
    command = shutil.which("gh")
    if command is None:
        return None
    done = process.run([command, "auth", "token"], env=dict(os.environ), cwd=Path.cwd(), timeout_s=ASK_TIMEOUT_S)
    return done.stdout.decode().strip() or None if done.exit_code == 0 else None
