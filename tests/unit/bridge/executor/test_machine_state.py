"""What a machine says of its power mode, swap and sleep: samples of the tools' documented output."""

from __future__ import annotations

import sys
import time

import pytest

from bridge.executor.observe import machine_state
from bridge.executor.observe.machine_state import MachineState, changed, slept_s

PMSET = """System-wide power settings:
Currently in use:
 standby              1
 Sleep On Power Button 1
 {line}
 womp                 1
"""


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("lowpowermode         0", "off"),
        ("lowpowermode         1", "on"),
        ("powermode            1", "on"),
        ("powermode            2", "off"),
        ("highstandbythreshold 50", None),
    ],
)
def test_low_power_mode_is_read_from_pmset(line, mode):
    assert machine_state.low_power_from_pmset(PMSET.format(line=line)) == mode


@pytest.mark.parametrize(
    ("text", "mode"), [("low-power\n", "on"), ("balanced\n", "off"), ("performance\n", "off"), ("", None), ("x", None)]
)
def test_low_power_mode_is_read_from_the_platform_profile(text, mode):
    assert machine_state.low_power_from_profile(text) == mode


def test_only_what_both_looks_know_is_recorded_and_sleep_is_the_difference():
    before = MachineState({"swap_used": ("5 bytes", "a"), "low_power": ("off", "b")}, 7.0)
    after = MachineState({"swap_used": ("9 bytes", "a"), "gpu0.mig": ("off", "c")}, 10_807.0)
    assert [(condition.name, condition.before, condition.after) for condition in changed(before, after)] == [
        ("swap_used", "5 bytes", "9 bytes")
    ]
    assert slept_s(before, after) == 10_800.0
    assert slept_s(before, MachineState({}, None)) is None


def test_this_machine_tells_its_swap_and_that_it_did_not_sleep_just_now():
    before = machine_state.look("unknown: no device")
    after = machine_state.look("unknown: no device")
    assert after.values["swap_used"][1] == "psutil swap_memory"
    assert slept_s(before, after) == pytest.approx(0.0, abs=0.01)


def test_who_is_held_up_between_two_clocks_sees_as_much_sleep():
    through = time.CLOCK_MONOTONIC if sys.platform == "darwin" else time.CLOCK_BOOTTIME
    held_up_s, awake_s = iter((0.3, 0.0, 0.0, 0.0, 0.0, 0.0)), 1000.0

    def read(clock: int) -> float:
        nonlocal awake_s
        before_s, awake_s = awake_s, awake_s + next(held_up_s)
        return before_s + (60.0 if clock == through else 0.0)

    assert machine_state.suspended_s(read) == pytest.approx(60.0)
