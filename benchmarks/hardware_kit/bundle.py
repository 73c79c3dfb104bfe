"""Make the bundle: what the sources say, what our parsers make of it, how the hardware tests ended."""

from __future__ import annotations

import json
import platform
import plistlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from benchmarks.hardware_kit.private import cleaned, left_in
from benchmarks.hardware_kit.sources import read_all
from benchmarks.hardware_kit.walls import walls
from bridge.diagnostics import Check
from bridge.executor.observe import condition, host, machine_state
from bridge.executor.observe.accelerators.apple import registry
from bridge.executor.observe.accelerators.find import find_meter
from bridge.executor.observe.condition import tool_output
from bridge.runner.maintenance.mac_checks import check_mac
from bridge.runner.maintenance.place_checks import check_cuda, this_place

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/hardware", "tests/unit/bridge/executor/accelerators", "tests/unit/bridge/runner/maintenance")
TESTS_S = 1800.0
_PACKAGES = ("mlx", "mlx-lm", "torch", "transformers", "nvidia-ml-py", "numpy")


def make(
    tests: Sequence[str] = TESTS, seconds: float = TESTS_S, now: Callable[[], float] = time.monotonic
) -> dict[str, Any]:
    """Return the bundle of this machine, not yet cleaned, after so many seconds: its tests get what reading leaves."""
    began = now()
    tried = walls()  # first: what the kernel refused is read for the minutes before
    raw, absent = read_all()
    described = host.describe()
    meter = find_meter()
    packages = {name: version for name in _PACKAGES if (version := _version(name)) is not None}
    return {
        "schema_version": 1,
        "kind": "hardware_kit",
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "bridge", "engine", "tests")),
        "machine": described.model_dump(mode="json", exclude={"name"}),
        "packages": packages,
        "python": platform.python_version(),
        "raw": raw,
        "absent": absent,
        "sandbox": tried,
        "parsed": {
            "meter": meter if isinstance(meter, str) else meter.source,
            "reading": None if isinstance(meter, str) else asdict(meter.read(())),
            "registry": _registry(raw),
            "condition": asdict(condition.read()),
            "state": {name: value for name, (value, _) in machine_state.look(meter).values.items()},
            "place": asdict(this_place()),
            "checks": [asdict(check) for check in _checks(packages, described.drivers)],
        },
        "tests": run_tests(tests, seconds - (now() - began)),
    }


def _registry(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the parser makes of the cut-down registry: the same numbers, or the cut took too much."""
    accelerators = registry(plistlib.dumps(raw["ioreg AGXAccelerator"])) if "ioreg AGXAccelerator" in raw else None
    if accelerators is None:
        return None
    return {
        "share": accelerators.share,
        "memory_bytes": accelerators.memory_bytes,
        "clients": len(accelerators.clients),
    }


def _checks(packages: dict[str, str], drivers: dict[str, str]) -> list[Check]:
    return [*(check_mac(tool_output) if sys.platform == "darwin" else ()), *check_cuda(packages, drivers)]


def run_tests(tests: Sequence[str], seconds: float = TESTS_S) -> list[dict[str, str]]:
    """Run the hardware tests and return how each ended: passed, skipped with its reason, or failed.

    Tests that do not end in so many seconds are one that failed.
    """
    seconds = max(1.0, seconds)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--junitxml={report}"]
        try:
            subprocess.run([*words, *tests], cwd=ROOT, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return [{"test": "all", "outcome": "failed", "why": f"not ended after {seconds:.0f} s"}]
        return ended(report.read_text("utf-8")) if report.exists() else []


def ended(report: str) -> list[dict[str, str]]:
    """Return the tests of a JUnit report; of a failure only its first line, since a traceback names paths."""
    outcomes = []
    for case in ET.fromstring(report).iter("testcase"):
        outcome = {"test": f"{case.get('classname')}.{case.get('name')}", "outcome": "passed"}
        for part in case:
            if part.tag in {"skipped", "failure", "error"}:
                message_lines = (part.get("message") or "").splitlines()
                outcome |= {
                    "outcome": "skipped" if part.tag == "skipped" else "failed",
                    "why": message_lines[0] if message_lines else "",
                }
        outcomes.append(outcome)
    return outcomes


def written(bundle: dict[str, Any], names: dict[str, str]) -> str:
    """Return the text of a bundle that may be committed.

    Raises:
        SystemExit: something private is left in it.
    """
    text = cleaned(json.dumps(bundle, indent=1, sort_keys=True, default=str), names) + "\n"
    if left := left_in(text, names):
        raise SystemExit(f"error: {len(left)} private words are left in the bundle, the first {left[0]!r}: not written")
    json.loads(text)
    return text


def name_of(bundle: dict[str, Any]) -> str:
    """Return the file's name: system, machine and accelerator."""
    machine = bundle["machine"]
    device = (machine["devices"] or ["no accelerator"])[0]
    words = f"{machine['os']} {machine['machine']} {device}".lower()
    return "-".join("".join(char if char.isalnum() else " " for char in words).split()) + ".json"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
