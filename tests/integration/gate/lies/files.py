"""What is no report, or not one file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.integration.gate.lies.registry import save, told, written
from tests.integration.gate.workload import Report


@told("an-unknown-kind", "G0-KIND", fell="bound")
def _(report: Report) -> None:
    report["kind"] = "speed_of_light"


@told("a-newer-version", "G0-KIND", fell="bound")
def _(report: Report) -> None:
    report["schema_version"] = 4


@told("a-kind-nobody-declared", "G1-KIND", fell="bound")
def _(report: Report) -> None:
    report["kind"] = "needle_recall"


@written("not-a-number", "G0-JSON", fell="bound")
def _(path: Path, report: Report) -> None:
    report["wall_s"] = float("nan")
    save(path, report)


@written("deeply-nested", "G0-JSON", fell="bound")
def _(path: Path, report: Report) -> None:
    path.write_text("[" * 1_000_000 + "]" * 1_000_000)


@written("cut-in-the-middle", "G0-JSON", fell="bound")
def _(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report)[:-40])


@written("a-hundred-megabytes", "G1-DECLARED", "G2-ENDING", fell="bound")
def _(path: Path, report: Report) -> None:
    path.write_bytes(json.dumps(report).encode() + b" " * (100 << 20))


@written("a-second-report", "G1-EXTRA", fell="bound")
def _(path: Path, report: Report) -> None:
    save(path, report)
    save(path.with_name("better.json"), report)


@written("a-report-through-a-link", "G1-DECLARED", fell="bound")
def _(path: Path, report: Report) -> None:
    real = Path(os.environ["HOME"]) / "real.json"
    save(real, report)
    path.symlink_to(real)


@written("a-report-with-two-names", "G1-DECLARED", fell="bound")
def _(path: Path, report: Report) -> None:
    real = Path(os.environ["HOME"]) / "real.json"
    save(real, report)
    path.hardlink_to(real)


@written("a-directory-for-a-report", "G1-DECLARED", fell="bound")
def _(path: Path, report: Report) -> None:
    path.mkdir()
