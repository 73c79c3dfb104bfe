"""Bare repositories of ours: hardened git calls, objects written without a process, and one reader of objects.

System and user configuration are shut out and there are no hooks; what a remote needs of the user's configuration
(proxy, credential helper, ssh command) is handed in by name. Knows nothing about refs, buses or requests.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from bridge.limits import GIT_LOCAL_WALL_S, MIB
from bridge.system.durable import write_all_atomically, write_atomically
from bridge.system.git import CallStop, Finished, collect, start
from bridge.system.gitobjects import GitObject, pack
from bridge.system.gitreader import ObjectReader

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
# What old tools wrote into commits and trees, and no clone can mend any more: names and times of people, zeros before
# modes. What concerns paths, .git and .gitmodules stays an error.
HARMLESS_SLIPS: Final = (
    "badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "missingEmail", "missingNameBeforeEmail",
    "missingSpaceBeforeDate", "missingSpaceBeforeEmail", "multipleAuthors", "zeroPaddedDate", "zeroPaddedFilemode",
)  # fmt: skip
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
    *((f"fetch.fsck.{slip}", "warn") for slip in HARMLESS_SLIPS),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("http.postBuffer", str(MIB)),  # what is more is sent in pieces, whose progress git prints
    ("pack.threads", "1"),
    ("push.negotiate", "false"),
)
# A lower limit that is in force already stays as it is: raising it is not ours, and without rights an error.
_BOUNDED: Final = (
    'now=$(ulimit -f); if [ "$now" = unlimited ] || [ "$now" -gt "$1" ]; then ulimit -f "$1" || exit 125; fi; '
    'shift; exec "$@"'
)
_CONFIG_FILE: Final = """[core]
repositoryformatversion = 0
bare = true
[gc]
auto = 0
[receive]
autogc = false
"""


@dataclass(frozen=True)
class GitSettings:
    """What the calls of a repository add to the hardened defaults.

    Attributes:
        config: git configuration in order, multi-valued keys repeated; passed in the environment, as it may be secret.
        environment: variables.
        alternates: object folders to read from as well.
    """

    config: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    alternates: tuple[Path, ...] = ()


_DEFAULT: Final = GitSettings()


class BareRepository:
    """A bare repository of ours.

    Args:
        path: its folder; made by `create`.
        settings: see `GitSettings`.
    """

    def __init__(self, path: Path, settings: GitSettings = _DEFAULT) -> None:
        self.path = path
        self.objects = path / "objects"
        self._settings = settings
        self._reader = ObjectReader(path, self._environment(), (self.objects, *settings.alternates))

    def create(self) -> None:
        """Make the repository unless it is there whole; private to its user, with no hooks.

        Tools that drop empty folders, and a power cut, leave one that git takes for none.
        """
        head = self.path / "HEAD"
        if (self.path / "refs").is_dir() and (self.path / "config").exists() and head.exists() and head.stat().st_size:
            return
        for folder in (self.path, self.objects, self.objects / "info", self.objects / "pack", self.path / "refs"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.restore_config()
        # HEAD is written last: a repository that has it is complete.
        write_atomically(head, b"ref: refs/heads/none\n", durable=False)

    def restore_config(self) -> None:
        """Write the configuration anew; a fetch of a part notes its whole URL there, from which reads get the rest."""
        write_atomically(self.path / "config", _CONFIG_FILE.encode("ascii"), durable=False)

    def run(
        self,
        arguments: Sequence[str],
        *,
        timeout_s: float = GIT_LOCAL_WALL_S,
        environment: Mapping[str, str] | None = None,
        max_file_bytes: int | None = None,
        stop: CallStop | None = None,
        quiet_s: float | None = None,
        config: tuple[tuple[str, str], ...] = (),
    ) -> Finished:
        """Run git on this repository and return how it ended.

        Args:
            arguments: after ``git --git-dir=...``.
            timeout_s: wall limit; at the limit its whole session is killed.
            environment: more variables for this call.
            max_file_bytes: the largest file git may write, e.g. a received pack.
            stop: when the call is given up before its limit; None: never.
            quiet_s: how long git may print nothing, not even its progress; None: up to the limit.
            config: more configuration for this call.

        Raises:
            GitError: git cannot be started.
        """
        argv = ["git", f"--git-dir={self.path}", *arguments]
        if max_file_bytes is not None:
            blocks = str(max(1, max_file_bytes // 512))
            argv = ["/bin/sh", "-c", _BOUNDED, "sh", blocks, *argv]
        process = start(argv, {**self._environment(config), **(environment or {})}, cwd=self.path)
        return collect(process, timeout_s, stop, quiet_s=quiet_s)

    def serving(self, verb: Literal["upload-pack", "receive-pack"]) -> tuple[list[str], dict[str, str]]:
        """Return program and environment of git serving this repository on its standard streams."""
        return ["git", verb, str(self.path)], self._environment()

    def write(self, objects: Iterable[GitObject], *, durable: bool) -> None:
        """Store objects: each atomically, or with `durable` all of them in a pack of their own, on the disk.

        One that is here already becomes as new as the others: it may be so old that a prune is about to delete it.
        """
        if durable:
            packed, index = pack(objects)
            beside = (
                self.objects / "pack" / f"pack-{secrets.token_hex(20)}.pack"
            )  # one that is there, a repack may delete
            # The index comes last: git takes a pack that has none for one that is being written.
            write_all_atomically([(beside, packed), (beside.with_suffix(".idx"), index)], mode=0o444)
            return
        for item in objects:
            path = _loose(self.objects, item.oid)
            try:
                os.utime(path)
            except FileNotFoundError:
                write_atomically(path, zlib.compress(item.header + item.data, 1), durable=False, mode=0o444)

    @contextlib.contextmanager
    def reader(self) -> Iterator[ObjectReader]:
        """Lend the one reader of the repository's objects; the git behind it stays open for the next loan."""
        self._reader.refresh()
        yield self._reader

    def close(self) -> None:
        """End the git behind the reader, if there is one; otherwise it ends with this object."""
        self._reader.close()

    def set_ref(self, ref: str, oid: str | None, *, durable: bool) -> None:
        """Let a ref of ours lead to an object that is here, or to none; nobody else writes our refs.

        Args:
            ref: its full name.
            oid: the object, or None.
            durable: whether to wait for the disk, which the object has to be on already.
        """
        path = self.path / ref
        if oid is None:
            path.unlink(missing_ok=True)
        else:
            # git takes a name that ends so for no ref
            write_atomically(path, f"{oid}\n".encode("ascii"), durable=durable, suffix=".lock")

    def _environment(self, config: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
        pairs = (*_FIXED_CONFIG, *self._settings.config, *config)
        environment = {**_FIXED_ENVIRONMENT, **self._settings.environment, "GIT_CONFIG_COUNT": str(len(pairs))}
        for number, (key, value) in enumerate(pairs):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        if self._settings.alternates:
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = joined(self._settings.alternates)
        return environment


def _loose(objects: Path, oid: str) -> Path:
    return objects / oid[:2] / oid[2:]


def joined(folders: Iterable[Path]) -> str:
    """Return folders as GIT_ALTERNATE_OBJECT_DIRECTORIES takes them, whatever their names hold."""
    return ":".join(map(_quoted, folders))


def _quoted(path: Path) -> str:
    text = str(path)
    if ":" not in text and not text.startswith('"'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
