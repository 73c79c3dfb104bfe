"""Go through what runner-setup wrote down (`setup.tsv` beside the policy) and say what is not so any more.

The same list that the script's `--check` goes through: each line is a kind, a name, a path, and what was made of it.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shlex
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.diagnostics import Check
from bridge.errors import KakeyaError
from bridge.system import process

RECEIPT: Final = "setup.tsv"
AGAIN: Final = "run the set-up script of runner-setup again, with the options it was set up with"
BY_ROOT: Final = "as root: the set-up script of runner-setup with --check, and the options it was set up with"
TIMEOUT_S: Final = 30.0
FILE_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Checked:
    """What came of a receipt: how many things were looked at, what is wrong, what this user may not look at."""

    count: int
    problems: tuple[Check, ...]
    hidden: tuple[str, ...]


def check(receipt: Path) -> Checked | None:
    """Return what came of a receipt, None when this machine was not set up by the script."""
    try:
        lines = receipt.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found: list[Check] = []
    hidden: list[str] = []
    for line in lines:
        kind, name, *rest = line.split("\t")
        look = CHECKS.get(kind)
        if look is None:
            found.append(Check(name, "fail", f"{receipt} has a line of unknown kind {kind!r}", AGAIN))
            continue
        try:
            found.extend(look(name, *rest))
        except PermissionError as error:
            hidden.append(str(error.filename))
        except (TypeError, OSError) as error:
            found.append(Check(name, "fail", f"cannot be looked at: {error}", AGAIN))
    return Checked(len(lines), tuple(found), tuple(hidden))


def _folder(name: str, path: str, mode: str, user: str) -> Iterator[Check]:
    del user
    where = Path(path)
    if not where.is_dir():
        yield Check(name, "fail", f"{path} is missing", AGAIN)
    elif _mode(where) != mode:
        yield Check(
            name, "fail", f"{path} has mode {_mode(where)}, expected {mode}", f"chmod {mode} {shlex.quote(path)}"
        )


def _file(name: str, path: str, mode: str, digest: str) -> Iterator[Check]:
    where = Path(path)
    if not where.is_file():
        yield Check(name, "fail", f"{path} is missing", AGAIN)
    elif _mode(where) != mode:
        yield Check(
            name, "fail", f"{path} has mode {_mode(where)}, expected {mode}", f"chmod {mode} {shlex.quote(path)}"
        )
    elif hashlib.sha256(where.read_bytes()[:FILE_MAX_BYTES]).hexdigest() != digest:
        yield Check(name, "fail", f"{path} differs from what was set up", AGAIN)


def _private(name: str, path: str, mode: str, user: str) -> Iterator[Check]:
    """Check the mode of a file whose content is its user's; a policy may be root's, for its user to read."""
    where = Path(path)
    if not where.is_file():
        yield Check(name, "fail", f"{path} is missing", AGAIN)
    elif _mode(where) != mode and not (name == "policy" and _is_roots_for(user, where)):
        yield Check(
            name, "fail", f"{path} is readable by others (mode {_mode(where)})", f"chmod {mode} {shlex.quote(path)}"
        )


def _is_roots_for(user: str, path: Path) -> bool:
    """Return whether a file is root's to change, and of all others only a user's group may read it."""
    facts = path.stat()
    try:
        groups = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except KeyError:
        return False
    return facts.st_uid == 0 and _mode(path) == "640" and facts.st_gid in groups


def _line(name: str, path: str, digest: str) -> Iterator[Check]:
    where = Path(path)
    lines = where.read_text(encoding="utf-8").splitlines() if where.is_file() else []
    if digest not in {hashlib.sha256(f"{line}\n".encode()).hexdigest() for line in lines}:
        yield Check(name, "fail", f"the line that was set up is missing in {path}", AGAIN)


def _exists(name: str, path: str) -> Iterator[Check]:
    if not Path(path).exists():
        yield Check(name, "fail", f"{path} is missing", AGAIN)


def _command(name: str, command: str, repair: str) -> Iterator[Check]:
    if shutil.which(command) is None:
        yield Check(name, "fail", f"{command} is not installed", repair)


def _user(name: str, user: str) -> Iterator[Check]:
    try:
        pwd.getpwnam(user)
    except KeyError:
        yield Check(name, "fail", f"the user {user} is missing", AGAIN)


def _interpreter(name: str, path: str, version: str) -> Iterator[Check]:
    """An upgrade, or a reboot after one, can take away or change the Python that the environment stands on."""
    done = _run([path, "-I", "-c", "import platform; print(platform.python_version())"])
    said = "" if done is None else done.stdout.decode("utf-8", "replace").strip()
    if done is None or not done.ok:
        yield Check(name, "fail", f"{path}, which the environment was made with, does not run", AGAIN)
    elif said.rsplit(".", 1)[0] != version.rsplit(".", 1)[0]:
        yield Check(name, "fail", f"{path} is Python {said} now, the environment was made with {version}", AGAIN)


def _runner(name: str, command: str, python: str) -> Iterator[Check]:
    for argv in ([python, "-I", "-c", "import bridge"], [command, "--help"]):
        done = _run(argv)
        if done is None or not done.ok:
            yield Check(name, "fail", f"{argv[0]} does not run", AGAIN)
            return


def _service(name: str, manager: str, words: str, repair: str) -> Iterator[Check]:
    done = _run([manager, *words.split()])
    if done is None or not done.ok:
        yield Check(name, "fail", f"not enabled and running: {Path(manager).name} {words} says no", repair)


CHECKS: Final[dict[str, Callable[..., Iterator[Check]]]] = {
    "command": _command,
    "exists": _exists,
    "file": _file,
    "folder": _folder,
    "interpreter": _interpreter,
    "line": _line,
    "mode": _private,
    "runner": _runner,
    "service": _service,
    "user": _user,
}


def _run(argv: list[str]) -> process.Completed | None:
    try:
        return process.run(argv, env=dict(os.environ), timeout_s=TIMEOUT_S)
    except KakeyaError:
        return None


def _mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"
