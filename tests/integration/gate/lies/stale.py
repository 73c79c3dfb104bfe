"""No report, or one that is not of this run."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from tests.integration.gate.lies.registry import earlier, save, told, written
from tests.integration.gate.workload import Report


@written("nothing", "G1-DECLARED", fell="bound")
def _(path: Path, report: Report) -> None:
    del path, report


@written("says-evidence-and-leaves-nothing", "G1-DECLARED", fell="bound")
def _(path: Path, report: Report) -> None:
    sys.stdout.write('{"decision": "evidence"}\nverdict: evidence\n::notice::evidence\n')


@written("copies-an-earlier-report", "G1-RUN", fell="bound")
def _(path: Path, report: Report) -> None:
    shutil.copyfile(earlier(), path)


@written("copies-an-earlier-report-with-its-times", "G1-FRESH", "G1-RUN", fell="bound")
def _(path: Path, report: Report) -> None:
    shutil.copy2(earlier(), path)


@written("dresses-an-earlier-report-up", "G4-MARKS", fell="times")
def _(path: Path, report: Report) -> None:
    old = json.loads(earlier().read_text())
    old["run"] = report["run"]
    for name in ("started_at", "ended_at", "wall_s"):
        old[name] = report[name]
    save(path, old)


@written("report-older-than-the-run", "G1-FRESH", fell="bound")
def _(path: Path, report: Report) -> None:
    save(path, report)
    os.utime(path, (time.time() - 3600, time.time() - 3600))


@told("another-run-id", "G1-RUN", fell="bound")
def _(report: Report) -> None:
    report["run"]["id"] = "01jd7zk3v8q4w2m6x9c5b7n1tb"


@told("another-request-digest", "G1-RUN", fell="bound")
def _(report: Report) -> None:
    report["run"]["request_digest"] = "ab" * 32


@told("another-profile", decision="valid", reason="passed")
def _(report: Report) -> None:
    report["run"]["profile"] = "claim"


@told("started-before-the-run", "G4-WINDOW", fell="times")
def _(report: Report) -> None:
    report["started_at"] = "2026-01-01T00:00:00.000Z"


@told("words-that-fit-no-record", decision="valid", reason="passed")
def _(report: Report) -> None:
    report["run"]["params"] = dict.fromkeys(("lie", "b", "c", "d"), "\x1b[31mevidence\x00\n" + "y" * 1500)
