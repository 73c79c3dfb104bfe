"""What the bus's own tests add to `make test`: processor seconds of the files that hold nothing else.

Processor time, as a clock on the wall says how busy the machine was. One process a file, so its imports count too,
which a whole run pays once a worker.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

BOUND_S = 30.0
FILES = (
    "tests/conformance/bus/test_archives.py",
    "tests/integration/bus/test_archived_results.py",
    "tests/integration/bus/test_hostile_refs.py",
    "tests/unit/bridge/bus/test_archive_parts.py",
    "tests/unit/bridge/bus/test_dead_beacons.py",
    "tests/unit/bridge/bus/test_kept_claims.py",
    "tests/unit/bridge/bus/test_renewals.py",
    "tests/unit/bridge/runner/test_inbox.py",
    "tests/unit/bridge/runner/test_rests.py",
    "tests/unit/steps/test_findings.py",
)
CASE = f"{len(FILES)} files"
PYTEST = (sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider")


def run(_case: str) -> list[Row]:
    """Run each file and once none of their tests, which is what the imports cost.

    Raises:
        RuntimeError: a test failed.
    """
    imports_s, _ = took_s("--collect-only", *FILES)
    files: dict[str, dict[str, float]] = {}
    for file in FILES:
        spent_s, said = took_s(file)
        files[file] = {"tests": int(re.findall(r"(\d+) passed", said)[-1]), "processor s": round(spent_s, 1)}
    tests_s = sum(one["processor s"] for one in files.values()) - (len(FILES) - 1) * imports_s
    return [{"files": files, "imports s": round(imports_s, 1), "processor s of all, imports once": round(tests_s, 1)}]


def took_s(*words: str) -> tuple[float, str]:
    """Run pytest with these words; return the processor seconds of it and its children, and what it said."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*PYTEST, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout[-4000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


STUDY = Study("own-tests", "How much processor time do the bus's own tests add to `make test`?", lambda: [CASE], run)
