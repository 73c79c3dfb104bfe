"""The runner's own log: JSON lines with time, level, run, version and traceback, rotated; people see it on stderr.

Messages may quote what strangers and workloads wrote: secrets are masked before a line is written, and whoever prints
one takes control characters out. The journal decides what happens after a crash, never this log.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import logging.handlers
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from bridge.executor.command.redaction import Redactor
from bridge.limits import RUNNER_LOG_FILES_COUNT, RUNNER_LOG_MAX_BYTES, RUNNER_LOG_TEXT_MAX_CHARS
from bridge.system.clock import rfc3339

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_CREDENTIALS: Final = re.compile(r"(https?://)[^/\s@]+@")
RunLog = logging.LoggerAdapter[logging.Logger]


def for_run(log: logging.Logger, run_id: str) -> RunLog:
    """Return a logger whose lines carry a run id."""
    return logging.LoggerAdapter(log, {"run": run_id})


class _Masked(logging.Formatter):
    """Formats a record with every secret masked; the handler's lock makes it one record at a time."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._secrets = frozenset(secrets)
        self._redactor = Redactor(self._secrets)

    def mask_also(self, secrets: Iterable[str]) -> None:
        """Mask these too; those before may still be printed by runs that go on."""
        self._secrets |= frozenset(secrets)
        self._redactor = Redactor(self._secrets)

    def masked(self, text: str) -> str:
        """Return text without secrets and without the user part of web addresses, which may hold a token."""
        text = _CREDENTIALS.sub(r"\1[redacted]@", text)
        data = self._redactor.feed(text.encode("utf-8", "surrogateescape")) + self._redactor.end()
        return data.decode("utf-8", "replace")


class _JsonLines(_Masked):
    def __init__(self, secrets: Iterable[str], versions: Mapping[str, str]) -> None:
        super().__init__(secrets)
        self._versions = dict(versions)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "run": getattr(record, "run", None),
            "message": self.masked(record.getMessage())[:RUNNER_LOG_TEXT_MAX_CHARS],
            "where": f"{record.module}:{record.lineno}",
            "pid": record.process,
            "versions": self._versions,
        }
        if record.exc_info:
            # The end names the error and the place it was raised at.
            line["traceback"] = self.masked(self.formatException(record.exc_info))[-RUNNER_LOG_TEXT_MAX_CHARS:]
        return json.dumps(line)


class _PlainLines(_Masked):
    def format(self, record: logging.LogRecord) -> str:
        run = getattr(record, "run", None)
        about = "" if run is None else f"{run[-8:]} "
        return f"{_time(record)} {about}{printable(self.masked(record.getMessage()))}"


class _LogFile(logging.handlers.RotatingFileHandler):
    """A rotated file of the owner's alone; a full disk ends no run, and is said once."""

    failed = False

    def _open(self) -> Any:
        fd = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return open(fd, self.mode, encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the name of the base class)
        if not self.failed:
            self.failed = True
            sys.stderr.write(f"{_time(record)} cannot write the log {self.baseFilename}: {sys.exc_info()[1]}\n")


def new_log(people: TextIO, secrets: Iterable[str] = ()) -> logging.Logger:
    """Return a logger that shows people every line from ``info`` on, without tracebacks."""
    log = logging.Logger("kakeya-runner", logging.DEBUG)  # noqa: LOG001 (one a runner, not one a process)
    stream = logging.StreamHandler(people)
    stream.setLevel(logging.INFO)
    stream.setFormatter(_PlainLines(secrets))
    log.addHandler(stream)
    return log


def keep_log(
    log: logging.Logger, path: Path, versions: Mapping[str, str], secrets: Iterable[str]
) -> Callable[[], None]:
    """Write a logger's lines to a file from now on; return what ends that.

    Args:
        log: the logger.
        path: the newest file; older ones lie beside it with a number.
        versions: written into every line.
        secrets: values that never get into the file.

    Raises:
        OSError: the file cannot be written.
    """
    file = _LogFile(path, maxBytes=RUNNER_LOG_MAX_BYTES, backupCount=RUNNER_LOG_FILES_COUNT - 1, encoding="utf-8")
    file.setFormatter(_JsonLines(secrets, versions))
    log.addHandler(file)

    def end() -> None:
        log.removeHandler(file)
        with contextlib.suppress(OSError):  # a full disk was said already
            file.close()

    return end


def mask_also(log: logging.Logger, secrets: Iterable[str]) -> None:
    """Let whatever a logger writes from now on mask these secrets too."""
    values = tuple(secrets)
    for handler in log.handlers:
        if isinstance(handler.formatter, _Masked):
            with handler.lock or contextlib.nullcontext():
                handler.formatter.mask_also(values)


def read_log(path: Path, wait: Callable[[], None] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log, oldest first; what is no line of it is left out.

    Args:
        path: the newest file.
        wait: called whenever nothing new is there, to go on across rotations without an end; None ends at the end.
    """
    for number in range(RUNNER_LOG_FILES_COUNT, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            yield from _parsed(older.read_bytes().splitlines())
    while wait is not None and not path.exists():
        wait()
    if path.exists():
        yield from _of_newest(path, wait)


def _of_newest(path: Path, wait: Callable[[], None] | None) -> Iterator[dict[str, Any]]:
    while True:
        with path.open("rb") as file:
            rest, rotated = b"", False
            while True:
                data = file.read()
                whole, _, rest = (rest + data).rpartition(b"\n")
                yield from _parsed(whole.splitlines())
                if wait is None or (rotated and not data):
                    break
                # Looked at before the last read, which then has everything that was written before the rotation.
                rotated = not data and path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino
                if not (data or rotated):
                    wait()
        if wait is None:
            return


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for raw in lines:
        try:
            line = json.loads(raw)
        except ValueError:
            continue  # torn by a crash
        if isinstance(line, dict) and line.get("level") in LEVELS:
            yield line


def shown(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line of the log as lines for people, its traceback below it."""
    run = str(line.get("run") or "-")
    yield printable(f"{line.get('time')} {line.get('level'):<7} {run[-8:]:<8} {line.get('message')}")
    for text in str(line.get("traceback") or "").splitlines():
        yield f"    {printable(text)}"


def printable(text: str) -> str:
    """Return text as one line that moves no cursor and colours nothing."""
    return "".join(char if char.isprintable() else " " for char in text)


def _time(record: logging.LogRecord) -> str:
    return rfc3339(dt.datetime.fromtimestamp(record.created, dt.UTC))
