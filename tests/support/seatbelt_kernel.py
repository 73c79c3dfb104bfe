"""A model of how macOS judges a sandbox profile: what `sandbox-exec` would let a program do, without a Mac.

Read from Apple's own profiles and the public reports that the table in test_seatbelt_kernel.py names, never measured
here. Of several rules that match the last one counts. A rule names operations (`file-read*` is every operation that
begins so) and filters, of which one has to match. Paths are judged by the real place of a file, in the case in which it
is stored; on the way to it each symbolic link is asked for its metadata at its own place. Operations and filters that
the model does not know are errors, so that no rule is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

_TOKEN: Final = re.compile(r'\s+|;[^\n]*|#"((?:[^"])*)"|"((?:[^"\\]|\\.)*)"|([()])|([^\s()";]+)')
_OPERATIONS: Final = (
    *("file-read-data", "file-read-metadata", "file-test-existence", "file-map-executable", "file-ioctl"),
    *("file-write-data", "file-write-create", "file-write-unlink", "process-exec", "process-fork", "signal"),
    *("process-info-pidinfo", "sysctl-read", "mach-lookup", "iokit-open-user-client", "iokit-get-properties"),
    *("ipc-posix-shm-read-data", "ipc-posix-shm-write-create", "ipc-posix-sem-open", "network-outbound"),
    *("network-inbound", "network-bind", "system-socket", "user-preference-read"),
    *("ipc-posix-shm-write-data", "ipc-posix-shm-write-unlink", "ipc-posix-sem-create", "mach-register", "nvram-get"),
)
# What `default` does not speak of: let through unless a rule names it (Apple's profiles, Chromium issue 799149).
_OPEN_UNLESS_NAMED: Final = ("file-map-executable", "iokit-get-properties", "process-info-pidinfo", "nvram-get")
_LINKS_MAX: Final = 32
DATA_VOLUME: Final = "/System/Volumes/Data"
# From /usr/share/firmlinks of macOS.
_FIRMLINKS: Final = ("/Applications", "/Library", "/Users", "/opt", "/private", "/usr/local")


@dataclass(frozen=True)
class Quoted:
    """A string of the profile, as opposed to a word of its language."""

    text: str


def _parse(text: str) -> Iterator[object]:
    """Yield the expressions of a profile.

    Raises:
        ValueError: it is none.
    """
    stack: list[list[object]] = [[]]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"no token at {text[at : at + 20]!r}")
        at = token.end()
        pattern, string, bracket, word = token.groups()
        if bracket == "(":
            stack.append([])
        elif bracket == ")":
            expression = stack.pop()
            if not stack:
                raise ValueError("a bracket is closed that was never opened")
            stack[-1].append(expression)
        elif pattern is not None:
            stack[-1].append(re.compile(pattern))
        elif string is not None:
            stack[-1].append(Quoted(re.sub(r"\\(.)", r"\1", string)))
        elif word is not None:
            stack[-1].append(word)
    if len(stack) != 1:
        raise ValueError("a bracket is not closed")
    yield from stack[0]


@dataclass(frozen=True)
class Subject:
    """What an operation is about; what does not belong to it is empty."""

    path: str = ""
    name: str = ""
    target: str = ""


def _covers(word: str, operation: str) -> bool:
    """Whether a rule about a word is about an operation."""
    if word == "default":
        return operation not in _OPEN_UNLESS_NAMED
    if word.endswith("*"):
        return operation.startswith(word[:-1])
    if not any(name == word or name.startswith(f"{word}-") for name in _OPERATIONS):
        raise ValueError(f"the model knows no operation {word}")
    return operation == word or (word == "iokit-open" and operation.startswith("iokit-open-"))


def _matches(expression: object, subject: Subject) -> bool:
    """Whether a filter holds for a subject."""
    if not isinstance(expression, list) or not isinstance(expression[0], str):
        raise TypeError(f"no filter: {expression!r}")
    kind, *values = expression
    if kind == "require-not":
        return not _matches(values[0], subject)
    if kind in ("require-all", "require-any"):
        return (all if kind == "require-all" else any)(_matches(value, subject) for value in values)
    return any(_holds(kind, value, subject) for value in values)


def _holds(kind: str, value: object, subject: Subject) -> bool:
    if isinstance(value, re.Pattern):
        if kind != "regex" and not kind.endswith("-name-regex"):
            raise ValueError(f"{kind} takes no regular expression")
        return value.search(subject.path if kind == "regex" else subject.name) is not None
    if kind == "target":
        return value == subject.target
    if not isinstance(value, Quoted):
        raise TypeError(f"{kind} takes a string, and got {value!r}")
    text = value.text
    if kind == "literal":
        return subject.path == text
    if kind == "subpath":
        return subject.path == text or subject.path.startswith(text.rstrip("/") + "/")
    if kind in (
        "global-name",
        "ipc-posix-name",
        "iokit-user-client-class",
        "iokit-registry-entry-class",
        "sysctl-name",
    ):
        return subject.name == text
    if kind in ("sysctl-name-prefix", "ipc-posix-name-prefix"):
        return subject.name.startswith(text)
    if kind == "remote":
        return subject.name == text
    raise ValueError(f"the model knows no filter {kind}")


class Profile:
    """A profile's rules, in order."""

    def __init__(self, text: str) -> None:
        self._rules = [entry for entry in _parse(text) if isinstance(entry, list) and entry[0] != "version"]

    def permits(self, operation: str, subject: Subject = Subject()) -> bool:
        """Return what the last rule says that is about an operation on a subject."""
        if operation not in _OPERATIONS:
            raise ValueError(f"the model knows no operation {operation}")
        answer = operation in _OPEN_UNLESS_NAMED
        for action, *rest in self._rules:
            words = [word for word in rest if isinstance(word, str)]
            filters = [entry for entry in rest if isinstance(entry, list)]
            # `(remote ip "…")`: the words inside are the filter's own.
            filters = [[part for part in entry if part not in ("ip", "tcp")] for entry in filters]
            if any(_covers(word, operation) for word in words) and (
                not filters or any(_matches(entry, subject) for entry in filters)
            ):
                answer = action == "allow"
        return answer


@dataclass(frozen=True)
class Volume:
    """A Mac's files as far as a lookup goes: what is stored where, and the links between.

    Attributes:
        files: paths of files and folders as they are stored; folders above them are there too.
        links: symbolic links, to what they say.
    """

    files: frozenset[str]
    links: Mapping[str, str] = field(default_factory=dict)

    def nodes(self, path: str) -> tuple[list[str], str]:
        """Return the links a lookup crosses, and the real place in the case in which it is stored.

        Raises:
            FileNotFoundError: nothing is there.
        """
        stored = {name.lower(): name for file in (*self.files, *self.links) for name in _with_folders(file)}
        place, pending, crossed = PurePosixPath("/"), [*reversed(PurePosixPath(path).parts[1:])], []
        while pending:
            part = pending.pop()
            node = str(place.parent if part == ".." else place / part)
            if node.lower() not in stored:
                raise FileNotFoundError(path)
            node = stored[node.lower()]
            if node not in self.links:
                place = PurePosixPath(node)
                continue
            crossed.append(node)
            if len(crossed) > _LINKS_MAX:
                raise FileNotFoundError(path)
            target = PurePosixPath(self.links[node])
            place = PurePosixPath("/") if target.is_absolute() else place
            pending += reversed([part for part in target.parts if part != "/"])
        return crossed, str(place)

    def permits(self, profile: Profile, operation: str, path: str) -> bool:
        """Whether a program gets to do something with the file a path leads to.

        A file of the data volume has two names, one by its firmlink and one below /System/Volumes/Data. Which of them
        the kernel judges when it is asked for by the second is documented nowhere: what either lets through is let
        through.
        """
        plain = path.removeprefix(DATA_VOLUME) if path.startswith(DATA_VOLUME + "/") else path
        links, real = self.nodes(plain)
        walked = all(profile.permits("file-read-metadata", Subject(path=link)) for link in links)
        doubled = plain != path and any(real == top or real.startswith(f"{top}/") for top in _FIRMLINKS)
        names = (real, DATA_VOLUME + real) if doubled else (real,)
        return walked and any(profile.permits(operation, Subject(path=name)) for name in names)


def _with_folders(path: str) -> Iterator[str]:
    yield path
    yield from (str(parent) for parent in PurePosixPath(path).parents)
