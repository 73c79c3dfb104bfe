"""Run the studies of an area where they stopped: `make studies AREA=...`, with STUDY=... one of them.

One case at a time, and one run of this program at a time on a machine, whatever the checkout. A case that is in the
committed report is not measured again: delete its line to repeat it. `STUDY="NAME --most N"` ends after N cases.
Exits 1 when a case failed; it stays open.
"""

from __future__ import annotations

import argparse
import fcntl
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

from benchmarks.areas import area
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


def run(name: str, studies: Sequence[Study], folder: Path = FOLDER, most: int | None = None) -> int:
    """Measure every case that is not done, at most so many of them; return the exit code."""
    failed, left = 0, most
    if not studies:
        print(f"{name}: no studies yet")
    for study in studies:
        report, cases = report_of(name, study.name, folder), study.cases()
        done = report.done(cases)
        print(f"{name}/{study.name}: {study.about} {len(done)} of {len(cases)} done", flush=True)
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
        if study.summary is not None and (entries := report.entries()):
            print(f"  {study.summary(entries)}", flush=True)
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the studies of the area that is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies", description=__doc__)
    parser.add_argument("area", type=area, metavar="AREA")
    parser.add_argument("names", nargs="*", metavar="STUDY", help="only these studies of the area; all by default")
    parser.add_argument("--most", type=int, help="end after so many cases; all that are open by default")
    asked = parser.parse_args(arguments)
    if asked.most is not None and asked.most < 1:
        parser.error(f"--most {asked.most}; expected at least 1 case")
    known = {study.name: study for study in STUDIES[asked.area]}
    if unknown := sorted(set(asked.names) - set(known)):
        parser.error(f"no study {', '.join(unknown)} in {asked.area}; there are {', '.join(known) or 'none'}")
    signal.signal(signal.SIGTERM, _ended)
    with alone():
        return run(asked.area, [known[name] for name in asked.names or known], most=asked.most)


def _ended(number: int, _frame: object) -> None:
    """End as an interrupt does, so that what a case started is ended, too; a second signal cuts nothing off."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
