"""Bare repositories of ours: hardened git calls, and objects written and read without a process where that is possible.

System and user configuration are shut out and there are no hooks; what a remote needs of the user's configuration
(proxy, credential helper, ssh command) is handed in by name. Knows nothing about refs, buses or requests.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.errors import GitError
from bridge.limits import GIT_LOCAL_WALL_S, MIB
from bridge.system.git import PIPE, Finished, Process, collect, end, kill, start
from bridge.system.gitobjects import GitObject, Kind

_FIXED_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_FLUSH": "1",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
}
_FIXED_CONFIG: Final = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", os.devnull),
    ("core.excludesFile", os.devnull),
    ("core.alternateRefsCommand", "true"),  # an alternate may be a shallow clone: its refs lead to commits it lacks
    ("protocol.allow", "never"),
    ("protocol.file.allow", "always"),
    ("protocol.http.allow", "always"),
    ("protocol.https.allow", "always"),
    ("protocol.ssh.allow", "always"),
    ("fetch.fsckObjects", "true"),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("http.postBuffer", str(64 * MIB)),
    ("pack.threads", "1"),
    ("push.negotiate", "false"),
)
_CONFIG_FILE: Final = """[core]
repositoryformatversion = 0
bare = true
[gc]
auto = 0
[receive]
autogc = false
"""


class GitObjectMissingError(GitError):
    """An object is not in the repository, or is of another kind."""


class GitObjectTooLargeError(GitError):
    """An object is larger than its reader allows."""


@dataclass(frozen=True)
class Settings:
    """What the calls of a repository add to the hardened defaults.

    Attributes:
        config: git configuration in order, multi-valued keys repeated; passed in the environment, as it may be secret.
        environment: variables.
        alternates: object folders to read from as well.
    """

    config: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    alternates: tuple[Path, ...] = ()


_DEFAULT: Final = Settings()


class BareRepository:
    """A bare repository of ours.

    Args:
        path: its folder; made by `create`.
        settings: see `Settings`.
    """

    def __init__(self, path: Path, settings: Settings = _DEFAULT) -> None:
        self.path = path
        self.objects = path / "objects"
        self._settings = settings

    def create(self) -> None:
        """Make the repository unless it is there; private to its user, with no hooks."""
        if (self.path / "HEAD").exists():
            return
        for folder in (self.path, self.objects, self.objects / "info", self.objects / "pack", self.path / "refs"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / "config").write_text(_CONFIG_FILE, encoding="ascii")
        write_atomically(self.path / "HEAD", b"ref: refs/heads/none\n")

    def run(
        self,
        arguments: Sequence[str],
        *,
        timeout_s: float = GIT_LOCAL_WALL_S,
        environment: Mapping[str, str] | None = None,
        max_file_bytes: int | None = None,
    ) -> Finished:
        """Run git on this repository and return how it ended.

        Args:
            arguments: after ``git --git-dir=...``.
            timeout_s: wall limit; at the limit its whole session is killed.
            environment: more variables for this call.
            max_file_bytes: the largest file git may write, e.g. a received pack.

        Raises:
            GitError: git cannot be started.
        """
        argv = ["git", f"--git-dir={self.path}", *arguments]
        if max_file_bytes is not None:
            blocks = str(max(1, max_file_bytes // 512))
            argv = ["/bin/sh", "-c", 'ulimit -f "$1" && shift && exec "$@"', "sh", blocks, *argv]
        process = start(argv, {**self._environment(), **(environment or {})}, cwd=self.path, stdin=None)
        return collect(process, timeout_s)

    def write(self, objects: Iterable[GitObject], *, durable: bool) -> None:
        """Store objects, each atomically; `durable` waits for the disk."""
        for one in objects:
            path = self._loose(one.oid)
            if not path.exists():
                path.parent.mkdir(exist_ok=True, mode=0o700)
                write_atomically(path, zlib.compress(one.header + one.data, 1), durable=durable, mode=0o444)

    @contextlib.contextmanager
    def reader(self) -> Iterator[ObjectReader]:
        """Open the repository's objects for reading; a process is started only when an object is packed."""
        reader = ObjectReader(self)
        try:
            yield reader
        finally:
            reader.close()

    def loose_size_and_content(self, oid: str, max_bytes: int) -> tuple[str, int, bytes] | None:
        """Return kind, size and up to `max_bytes` of a loose object, or None when it is not loose here."""
        try:
            packed = self._loose(oid).read_bytes()
        except OSError:
            return None
        unpacked = zlib.decompressobj().decompress(packed, max_bytes + 64)
        header, _, content = unpacked.partition(b"\0")
        kind, _, size = header.decode("ascii").partition(" ")
        return kind, int(size), content

    def cat_file(self) -> Process:
        """Start git's object server on pipes."""
        argv = ["git", f"--git-dir={self.path}", "cat-file", "--batch-command"]
        return start(argv, self._environment(), cwd=self.path, stdin=PIPE)

    def _loose(self, oid: str) -> Path:
        return self.objects / oid[:2] / oid[2:]

    def _environment(self) -> dict[str, str]:
        pairs = (*_FIXED_CONFIG, *self._settings.config)
        environment = {**_FIXED_ENVIRONMENT, **self._settings.environment, "GIT_CONFIG_COUNT": str(len(pairs))}
        for number, (key, value) in enumerate(pairs):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        if self._settings.alternates:
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = ":".join(map(_quoted, self._settings.alternates))
        return environment


class ObjectReader:
    """Reads objects of a repository and its alternates, within bounds."""

    def __init__(self, repository: BareRepository) -> None:
        self._repository = repository
        self._process: Process | None = None
        self._watchdog: threading.Timer | None = None

    def read(self, oid: str, kind: Kind, max_bytes: int) -> bytes:
        """Return an object's content.

        Raises:
            GitObjectMissingError: it is not here, or is of another kind.
            GitObjectTooLargeError: it is larger than `max_bytes`.
            GitError: git failed.
        """
        loose = self._repository.loose_size_and_content(oid, max_bytes)
        if loose is not None:
            self._check(oid, kind, loose[0], loose[1], max_bytes)
            return loose[2]
        found = self._info(oid)
        if found is None:
            raise GitObjectMissingError(f"object {oid[:12]} is not here")
        self._check(oid, kind, *found, max_bytes)
        self._ask(f"contents {oid}")
        return self._exactly(found[1] + 1)[:-1]

    def size(self, oid: str) -> int:
        """Return an object's size in bytes.

        Raises:
            GitObjectMissingError: it is not here.
        """
        loose = self._repository.loose_size_and_content(oid, 0)
        found = loose[:2] if loose is not None else self._info(oid)
        if found is None:
            raise GitObjectMissingError(f"object {oid[:12]} is not here")
        return found[1]

    def has(self, oid: str) -> bool:
        """Return whether an object is here."""
        return self._repository.loose_size_and_content(oid, 0) is not None or self._info(oid) is not None

    def close(self) -> None:
        """End the process, if one was started."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._process is not None:
            end(self._process)
            self._process = None

    @staticmethod
    def _check(oid: str, kind: Kind, found_kind: str, size: int, max_bytes: int) -> None:
        if found_kind != kind:
            raise GitObjectMissingError(f"object {oid[:12]} is a {found_kind}; expected a {kind}")
        if size > max_bytes:
            raise GitObjectTooLargeError(f"{kind} {oid[:12]} has {size} bytes; at most {max_bytes} are read")

    def _info(self, oid: str) -> tuple[str, int] | None:
        parts = self._ask(f"info {oid}").split()
        if len(parts) == 2 and parts[1] == "missing":
            return None
        if len(parts) != 3 or parts[0] != oid:
            raise GitError(f"git cat-file answered {parts[:4]!r} about {oid}")
        return parts[1], int(parts[2])

    def _ask(self, command: str) -> str:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - asked for
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(command.encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise GitError("git cat-file ended early") from error
        return process.stdout.readline(1024).decode("ascii", "replace")

    def _exactly(self, size: int) -> bytes:
        stream = self._running().stdout
        assert stream is not None  # noqa: S101
        data = stream.read(size)
        if len(data) != size:
            raise GitError(f"git cat-file ended after {len(data)} of {size} bytes")
        return data

    def _running(self) -> Process:
        if self._process is None:
            self._process = process = self._repository.cat_file()
            self._watchdog = threading.Timer(GIT_LOCAL_WALL_S * 3, kill, (process.pid,))
            self._watchdog.daemon = True
            self._watchdog.start()
        return self._process


def write_atomically(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o600) -> None:
    """Write a file that is either whole or absent."""
    descriptor, name = tempfile.mkstemp(prefix="tmp_", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            if durable:
                os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _quoted(path: Path) -> str:
    text = str(path)
    if ":" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
