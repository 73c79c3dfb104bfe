"""Keep the outcomes of sandbox trials in a folder, for as long as nothing that decides them changes.

Only a sandbox that held is kept: what failed once may work the next time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import psutil

from bridge import strictjson
from bridge.executor.interface import Escape, HostPaths, RunKind
from bridge.executor.observe.condition import file_text
from bridge.executor.sandbox.user import job_uid
from bridge.executor.trial import SandboxTrial
from bridge.records.base import Record
from bridge.records.run import SandboxApplied
from bridge.system.durable import write_atomically

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_STATUS: Final = Path("/proc/self/status")
_CONFINED: Final = ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")  # what a service manager may take from a runner
_SETTINGS: Final = (
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
    "/proc/self/attr/current",
)
_PACKAGE: Final = Path(__file__).parent
_MAX_BYTES: Final = 1 << 18


class KeptTrial(Record):
    """One kept outcome: what a run gets, and the ways out that were refused."""

    applied: SandboxApplied
    refused: tuple[str, ...]


class TrialCache:
    """Outcomes of trials by their key, in a folder that is this user's alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> SandboxTrial | None:
        """Return a kept outcome; None where there is none, or where somebody else could have written it."""
        path = self._folder / f"{key}.json"
        try:
            facts = [path.parent.lstat(), path.lstat()]
            if any(fact.st_uid != os.geteuid() or fact.st_mode & 0o022 or stat.S_ISLNK(fact.st_mode) for fact in facts):
                return None
            record = KeptTrial.parse(path.read_bytes(), max_bytes=_MAX_BYTES)
        except (OSError, ValueError):  # absent, cut off, or of another version
            return None
        return SandboxTrial(record.applied, tuple(Escape(what, refused=True) for what in record.refused))

    def store(self, key: str, trial: SandboxTrial) -> None:
        """Keep an outcome if its sandbox held; where the folder cannot be written, the next process tries again."""
        if trial.applied.kind == "none" or not all(escape.refused for escape in trial.escapes):
            return
        record = KeptTrial(applied=trial.applied, refused=tuple(escape.what for escape in trial.escapes))
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in self._folder.glob("*.json"):
                if old.stat().st_mtime < psutil.boot_time():
                    old.unlink()
            write_atomically(self._folder / f"{key}.json", record.canonical(), mode=0o600)


def trial_key(uid: int | None, kind: RunKind, paths: HostPaths) -> str:
    """Return the digest of everything that decides the outcome of a trial: another key, another trial.

    Boot, kernel, this package, the sandbox's and the interpreter's program, user and rights of this process, the paths
    that the policy hides and shows, and the kind of run.
    """
    value = {
        "boot": file_text(_BOOT) or str(psutil.boot_time()),
        "kernel": platform.release(),
        "package": _digest(sorted(_PACKAGE.rglob("*.py"))),
        "programs": [_digest([Path(path)]) for path in _programs(paths)],
        "rights": [line for line in file_text(_STATUS).splitlines() if line.startswith(_CONFINED)],
        "settings": [file_text(Path(path)) for path in _SETTINGS],
        "users": [os.getuid(), job_uid(uid)],
        "kind": asdict(kind),
        "paths": asdict(paths),
        "exist": [Path(path).exists() for path in (*paths.private, *paths.read_only, *paths.devices)],
    }
    return hashlib.sha256(strictjson.encode(value)).hexdigest()


def _programs(paths: HostPaths) -> Iterator[str]:
    yield os.path.realpath(paths.interpreter or sys.executable)
    for name in ("bwrap", "setpriv"):
        program = shutil.which(name, path="/usr/bin:/usr/local/bin:/bin")
        yield from () if program is None else (os.path.realpath(program),)


def _digest(paths: list[Path]) -> str:
    state = hashlib.sha256()
    for path in paths:
        with contextlib.suppress(OSError), path.open("rb") as file:
            state.update(f"{path}\0".encode())
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.hexdigest()
