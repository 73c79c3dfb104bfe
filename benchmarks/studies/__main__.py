"""Run studies where they stopped: `make studies STUDY="NAME ..."`; without a name, list those there are.

One case at a time, and one run of this program at a time on a machine, whatever the checkout. A case that is in the
report is not measured again: delete its line to repeat it. `STUDY="NAME --most N"` ends after N cases. At the end
stands what the whole report comes to; `STUDY="NAME --digest"` keeps that alone, for a report too large to commit.
Exits 1 when a case failed; it stays open.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.studies.registry import STUDIES
from benchmarks.studies.report import FOLDER, ROOT, report_of
from benchmarks.studies.study import Study
from bridge.system.clock import SystemClock, rfc3339

LOCK = Path(tempfile.gettempdir()) / f"kakeya-studies-{os.getuid()}.lock"


@contextmanager
def alone(path: Path = LOCK) -> Iterator[None]:
    """Hold the machine's lock on studies.

    Raises:
        SystemExit: another run holds it.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"error: other studies run on this machine and hold {path}; wait for their end") from None
        yield


def circumstances() -> dict[str, object]:
    """Return what an entry says of the machine and the tree it was measured on.

    Reports and results make no tree dirty: the first case of a run adds a line to one, or keeps a result.
    """
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", f":(exclude){FOLDER.parent.relative_to(ROOT)}")
    return {
        "commit": f"{commit}-dirty" if changed else commit,
        "machine": f"{platform.platform()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}",
        "python": platform.python_version(),
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run(studies: Sequence[Study], folder: Path = FOLDER, most: int | None = None) -> int:
    """Measure every case that is not done, at most so many of them; return the exit code."""
    failed, left = 0, most
    for study in studies:
        report, cases = report_of(study.name, folder), study.cases()
        done = report.done(cases)
        print(f"{study.name}: {study.about} {len(done)} of {len(cases)} done", flush=True)
        todo = [case for case in cases if case not in done][:left]
        left = None if left is None else left - len(todo)
        for case in todo:
            began, around = time.monotonic(), circumstances()
            try:
                rows = study.run(case)
            except Exception as error:  # noqa: BLE001 (the other cases can still be measured)
                failed += 1
                print(f"  failed: {case}: {error}", file=sys.stderr, flush=True)
                continue
            entry = {"case": case, "of": len(cases), "ended": rfc3339(SystemClock().now()), "rows": rows} | around
            report.append(entry | {"seconds": round(time.monotonic() - began, 1)})
            done.append(case)
            print(f"  {len(done)} of {len(cases)}: {case}", flush=True)
        for line in study.lines(report.entries()):
            print(f"  {line}", flush=True)
    return 1 if failed else 0


def keep_digest(study: Study, folder: Path = FOLDER) -> Path:
    """Write what a report comes to beside it, with the commits and machines it was measured on; return the file.

    Raises:
        SystemExit: there is no report, or the study has no summary.
    """
    report = report_of(study.name, folder)
    entries = report.entries()
    if not entries or study.summary is None:
        raise SystemExit(f"error: {report.path} has no cases, or {study.name} has no summary; measure it first")
    digest = {
        "study": study.name,
        "command": f"make studies STUDY={study.name}",
        "cases": len(entries),
        "of": len(study.cases()),
        "commits": sorted({entry["commit"] for entry in entries}),
        "machines": sorted({entry["machine"].rpartition(", load ")[0] for entry in entries}),
        "ended": max(entry["ended"] for entry in entries),
        "summary": study.summary(entries),
    }
    path = report.path.with_suffix(".json")
    path.write_text(json.dumps(digest, indent=1) + "\n", encoding="utf-8")
    return path


def print_list() -> None:
    """Print every study with its question and how long it took."""
    for study in STUDIES.values():
        print(f"{study.name}: {study.about} ({study.duration})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the studies that are named, or list all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="STUDY", help="which; all are listed by default")
    parser.add_argument("--most", type=int, help="end after so many cases; all that are open by default")
    parser.add_argument("--digest", action="store_true", help="measure nothing; keep what the reports come to")
    options = parser.parse_args(arguments)
    if options.most is not None and options.most < 1:
        parser.error(f"--most {options.most}; expected at least 1 case")
    if unknown := sorted(set(options.names) - set(STUDIES)):
        parser.error(f"no study {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    chosen = [STUDIES[name] for name in options.names]
    if not chosen:
        print_list()
        return 0
    if options.digest:
        for study in chosen:
            print(keep_digest(study))
        return 0
    signal.signal(signal.SIGTERM, _end)
    with alone():
        return run(chosen, most=options.most)


def _end(number: int, _frame: object) -> None:
    """End as an interrupt does, so that what a case started is ended, too; a second signal cuts nothing off."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
