"""What the issue on Macs and GPU boxes promises to show; nothing here ran on one."""

from __future__ import annotations

from benchmarks.show.identity import ran
from benchmarks.show.line import Line

GATE = "tests/unit/bridge/gate/test_accelerator.py"
METERS = "tests/unit/bridge/executor/accelerators"
STATE = "tests/unit/bridge/executor/test_machine_state.py"
PYTEST = "python -m pytest -n 0 -q"

LINES = (
    Line(
        "claims on sampled metal:0 and cuda:0 reach evidence; without a meter they say unseen; with the arm asleep or "
        "contradictory sources they name the premise that fell",
        f"{PYTEST} {GATE} {METERS}",
        lambda: ran(GATE, METERS),
    ),
    Line(
        "each planted state of the machine is one line with a remedy (low power, swap, sleep, split, slowed and shared "
        "cards; not yet: pressure of other sources, driver against wheel, what doctor finds)",
        f"{PYTEST} {STATE} {GATE}",
        lambda: ran(STATE, GATE, "-k", "own_speed or slept or power or look"),
    ),
    Line("a 26B model on a 16 GB Mac is refused before loading", "not built"),
    Line("two slots never share a card", "not built"),
    Line("a simulated suspend of 3 h in mid-run: lease, deadline and verdict right", f"{PYTEST} {GATE} -k slept"),
    Line("both hostile places of doctor simulated", "not built"),
    Line("the kit runs here and says what is absent", "not built"),
)
