"""What the issue on Macs and GPU boxes promises to show; nothing here ran on one."""

from __future__ import annotations

from typing import Any

from benchmarks.show.identity import ran
from benchmarks.show.line import Line
from benchmarks.studies import hostile_places
from benchmarks.studies.report import report_of

GATE = "tests/unit/bridge/gate/test_accelerator.py"
METERS = "tests/unit/bridge/executor/accelerators"
STATE = "tests/unit/bridge/executor/test_machine_state.py"
DOCTOR = "tests/unit/bridge/runner/maintenance"
FITS = "tests/unit/engine/structure/test_memory.py"
SLOTS = "tests/unit/bridge/runner/test_slots.py"
SUSPEND = "tests/unit/bridge/runner/test_suspend.py"
BOUNDS = "tests/unit/bridge/executor/test_bounds.py"
KIT = "tests/unit/benchmarks/test_hardware_kit.py"
PYTEST = "python -m pytest -n 0 -q"
STUDY = "make studies AREA=hardware"


def hostile() -> str | None:
    """Return what doctor, the host's presets and code of requests come to in both places."""
    newest = {entry["case"]: entry for entry in report_of("hardware", hostile_places.STUDY.name).entries()}
    said = [f"{case}: {_said(newest[case]['rows'])}" for case in hostile_places.PLACES if case in newest]
    return "; ".join(said) or None


def _said(rows: list[dict[str, Any]]) -> str:
    doctor, preset, code = rows
    remedy = "with a remedy" if doctor["remedy"] else "without a remedy"
    unconfined = any("NO SANDBOX" in line for line in preset["said"])
    said = "says so on its line" if unconfined else "says nothing"
    return (
        f"doctor {doctor['lines']} line {remedy}, a host preset ends in {preset['exit_code']} and {said}, "
        f"code of a request ends in {code['exit_code']} ({code['reason']})"
    )


LINES = (
    Line(
        "claims on sampled metal:0 and cuda:0 reach evidence; without a meter they say unseen; with the arm asleep or "
        "contradictory sources they name the premise that fell",
        f"{PYTEST} {GATE} {METERS}",
        lambda: ran(GATE, METERS),
    ),
    Line(
        "each planted state of the machine and of what doctor looks at is one line with a remedy",
        f"{PYTEST} {STATE} {GATE} {DOCTOR}",
        lambda: ran(STATE, GATE, DOCTOR),
    ),
    Line("a 26B model on a 16 GB Mac is refused before loading", f"{PYTEST} {FITS}", lambda: ran(FITS)),
    Line("two slots never share a card", f"{PYTEST} {SLOTS} -k card", lambda: ran(SLOTS, "-k", "card")),
    Line(
        "a simulated suspend of 3 h in mid-run: lease, deadline and verdict right",
        f"{PYTEST} {SUSPEND} {BOUNDS} {GATE} -k 'slept or ended_meanwhile or alone_on_its_bus or how_long'",
        lambda: ran(SUSPEND, BOUNDS, GATE, "-k", "slept or ended_meanwhile or alone_on_its_bus or how_long"),
    ),
    Line("both hostile places of doctor simulated", STUDY, hostile),
    Line("the kit runs here and says what is absent", f"make hardware-kit; {PYTEST} {KIT}", lambda: ran(KIT)),
    Line("adds at most 15 s to make test", "python -m pytest --durations=0 of the files above"),
)
