"""Runs in turns that lack what the runner would make, or bring it themselves."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.integration.gate.lies.registry import save, turned
from tests.integration.gate.workload import Report


def answered_for_the_host(path: Path, report: Report) -> None:
    """Leave the answer of the recompute command beside the report."""
    save(path, report)
    rows = [
        {
            "prompt_digest": row["prompt_digest"], "token_digest": row["token_digest"], "tokens": row["output_tokens"],
            "worst_gap": 0.0, "worst_at": 0, "text_sha256": "", "free_running": True, "layout": None,
        }
        for arm in report["arms"] for row in arm["samples"]
    ]  # fmt: skip
    answer = {"target": report["config"]["target"]["digest"], "delta": 0.0, "rows": rows}
    path.with_name("recompute.json").write_text(json.dumps({"schema_version": 1, "reports": {"report.json": answer}}))


def without_prompts(path: Path, report: Report) -> None:
    del report["prompts"]
    save(path, report)


def changed_afterwards(path: Path, report: Report) -> None:
    """Leave a process behind that changes the report as soon as it was computed again."""
    save(path, report)
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        until = time.monotonic() + 240
        while not path.with_name("recompute.json").exists() and time.monotonic() < until:
            time.sleep(0.02)
        path.write_text("{}")
        os._exit(0)


def one_process_for_all(written: int) -> None:
    """Let later launches go on only with the process that the first one left behind."""
    pid_file = Path(os.environ["KAKEYA_MODEL_ROOTS"]) / "left-behind"
    if written == 0 and os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pid_file.write_text(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    if written == 1:
        try:
            os.kill(int(pid_file.read_text()), 0)
        except ProcessLookupError:
            sys.exit("the process of the first launch is gone")


turned("no-reference", "G5-REFERENCE", fell="times", preset="without-reference")
turned("no-stretches-alone", "G5-REFERENCE", fell="times", preset="without-stretches")
turned("no-recompute-command", "G2-RECOMPUTED", fell="outputs", preset="without-recompute")
turned("a-reference-of-another-program", "G2-CODE", fell="code", preset="foreign-reference")
turned("a-report-by-another-program", "G2-CODE", fell="code", preset="foreign-assemble")
turned("prompts-left-out-in-turns", "G2-ENDING", fell="bound", rejected=True, write=without_prompts)
turned("answers-for-the-host", "G2-ENDING", fell="bound", rejected=True, write=answered_for_the_host)
turned(
    "a-report-changed-after-its-command",
    unseen="the process is ended with its command, before anything is computed again: nothing is gained",
    write=changed_afterwards,
)
turned("launches-in-one-process", "G2-ENDING", fell="bound", rejected=True, begin_launch=one_process_for_all)
