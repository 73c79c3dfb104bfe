"""Run every probe and print one line with what came of each."""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import files  # noqa: F401 (each of the four registers its probes)
import harness
import kernel
import network  # noqa: F401
import processes  # noqa: F401

tried = sum(1 for top in ("/proc", "/sys") for _ in kernel.files_below(top))
print("ESCAPES " + json.dumps({"probes": harness.run_all(), "files": tried}), flush=True)
