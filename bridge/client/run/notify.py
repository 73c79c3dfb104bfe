"""Start a program of the asker's own when a wait is over, and never let it stand in the way."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import Any, Final

from bridge.errors import KakeyaError, UsageError
from bridge.system.process import run

NOTIFY_S: Final = 30.0


def argv_of(command: str) -> list[str]:
    """Return the words of a command that no shell sees.

    Raises:
        UsageError: it has none, or a quote is open.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--notify {command[:80]!r}: {error}", remedy="--notify 'PROGRAM WORD…'") from error
    if not words:
        raise UsageError("--notify is empty; expected a program", remedy="--notify 'PROGRAM WORD…'")
    return words


def notify(command: str, document: Mapping[str, Any], timeout_s: float = NOTIFY_S) -> str | None:
    """Tell a program how a run ended; return what went wrong with it in one line, None where nothing did.

    Args:
        command: what to start; no shell sees it.
        document: of the run, as ``--json`` prints it: on its stdin.
        timeout_s: after which it is ended.
    """
    outcome = document["outcome"]
    facts = {
        "KAKEYA_RUN_ID": document["id"] or "",
        "KAKEYA_REASON": outcome["reason"],
        "KAKEYA_VERDICT": outcome["verdict"] or "",
    }
    data = json.dumps(document).encode()
    try:
        done = run(argv_of(command), env={**os.environ, **facts}, timeout_s=timeout_s, input=data)
    except KakeyaError as error:
        return f"--notify could not be started: {error.message}"
    if done.timed_out:
        return f"--notify was ended after {timeout_s:.0f}s: {command[:80]}; let it hand the work on and end"
    if done.exit_code != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"--notify ended with {done.exit_code}: {words[0][:200] if words else command[:80]}"
    return None
