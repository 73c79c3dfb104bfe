"""An end that says something else than the report."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tests.integration.gate.lies.registry import MODELS, lie, save, written
from tests.integration.gate.workload import Behaviour, Report


@lie("a-good-report-and-exit-code-1", "G2-ENDING", fell="bound", reason="program_failed")
def _() -> Behaviour:
    return Behaviour(exit_code=1)


@written("a-good-report-and-a-crash", "G2-ENDING", fell="bound", reason="program_failed")
def _(path: Path, report: Report) -> None:
    save(path, report)
    os.kill(os.getpid(), signal.SIGSEGV)


@written("says-evidence", decision="valid", reason="passed")
def _(path: Path, report: Report) -> None:
    save(path, report)
    sys.stdout.write('verdict: evidence\n{"decision": "evidence", "premises": []}\n')


@written("changes-the-report-after-the-end", decision="valid", reason="passed")
def _(path: Path, report: Report) -> None:
    """Leave a process behind that holds the file open and waits for everybody to have looked."""
    save(path, report)
    ready, left = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        descriptor = os.open(path, os.O_RDWR)
        (Path(os.environ[MODELS]) / "left-behind").write_text(str(os.getpid()))
        os.write(left, b"!")
        time.sleep(20)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"{}")
        os._exit(0)
    # Who ends before is ended with all that it has left: nobody would have held the file.
    os.close(left)
    os.read(ready, 1)
    os.close(ready)
