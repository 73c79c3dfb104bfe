"""Write who asked for what, and what became of it, where a host's owner keeps such records: journald, syslog, a file.

One JSON object a record. A target that takes no record ends no run; it is said once. The runner's own log is another
thing: it says what the program did, and is rotated.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bridge.errors import UsageError
from bridge.runner.state.log import RunLog
from bridge.system.clock import rfc3339
from bridge.system.durable import append_whole

JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
SYSLOG_SOCKET: Final = Path("/dev/log")
_SYSLOG_PRIORITY: Final = 10 * 8 + 6  # authpriv, informational (RFC 5424, section 6.2.1)
_IDENTIFIER: Final = "kakeya-runner"


def audit(log: logging.Logger | RunLog, event: str, run: str | None, **facts: object) -> None:
    """Note one event for the owner's records; people are shown nothing.

    Args:
        log: the runner's logger.
        event: what happened: ``request``, ``refused``, ``ended`` or ``root``.
        run: the run it is about, None for none.
        facts: what belongs to it.
    """
    base = log if isinstance(log, logging.Logger) else log.logger
    base.debug("audit: %s %s", event, facts, extra={"run": run, "audit": {"event": event, "run": run, **facts}})


def keep_audit(
    log: logging.Logger, target: str | None, *, journal: Path = JOURNAL_SOCKET, syslog: Path = SYSLOG_SOCKET
) -> Callable[[], None]:
    """Send a logger's audit records to a target from now on; return what ends that.

    Args:
        log: the runner's logger.
        target: ``journald``, ``syslog``, the absolute path of a file, or None for nowhere.
        journal: journald's socket on this machine.
        syslog: syslog's.

    Raises:
        UsageError: the target cannot be opened.
    """
    if target is None:
        return lambda: None
    try:
        handler = _FileAudit(Path(target)) if target.startswith("/") else _SocketAudit(
            journal if target == "journald" else syslog, _journal_record if target == "journald" else _syslog_record
        )  # fmt: skip
    except OSError as error:
        raise UsageError(
            f"audit = {target!r} in policy.toml: {error.strerror}",
            remedy="name journald, syslog, or the absolute path of a file that the runner may write",
        ) from error
    log.addHandler(handler)

    def end() -> None:
        log.removeHandler(handler)
        handler.close()

    return end


class _AuditHandler(logging.Handler, ABC):
    """Passes audit records on; a target that fails is said once."""

    failed = False

    def emit(self, record: logging.LogRecord) -> None:
        facts: Mapping[str, Any] | None = getattr(record, "audit", None)
        if facts is None:
            return
        moment = rfc3339(datetime.fromtimestamp(record.created, UTC))
        try:
            self.write(json.dumps({"time": moment, **facts}, default=str), str(facts["event"]))
        except OSError as error:
            if not self.failed:
                self.failed = True
                sys.stderr.write(f"kakeya-runner: an audit record could not be written: {error}\n")

    @abstractmethod
    def write(self, text: str, event: str) -> None:
        """Write one record."""


class _FileAudit(_AuditHandler):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def write(self, text: str, event: str) -> None:
        del event
        append_whole(self._descriptor, f"{text}\n".encode(), durable=False)

    def close(self) -> None:
        os.close(self._descriptor)
        super().close()


class _SocketAudit(_AuditHandler):
    def __init__(self, path: Path, form: Callable[[str, str], bytes]) -> None:
        super().__init__()
        self._form = form
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def write(self, text: str, event: str) -> None:
        self._socket.send(self._form(text, event))

    def close(self) -> None:
        self._socket.close()
        super().close()


def _journal_record(text: str, event: str) -> bytes:
    """Return a record in journald's protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL); JSON has no newline."""
    return f"MESSAGE={text}\nPRIORITY=6\nSYSLOG_IDENTIFIER={_IDENTIFIER}\nKAKEYA_EVENT={event}\n".encode()


def _syslog_record(text: str, event: str) -> bytes:
    del event
    return f"<{_SYSLOG_PRIORITY}>{_IDENTIFIER}[{os.getpid()}]: {text}".encode()
