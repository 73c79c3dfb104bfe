from __future__ import annotations

import pytest

from bridge.executor.observe import condition
from bridge.executor.observe.condition import Reading

LEVEL = "com.apple.system.thermalpressurelevel"


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        (f"{LEVEL} 0\n", Reading("nominal", f"notifyutil {LEVEL}")),
        (f"{LEVEL} 2\n", Reading("heavy", f"notifyutil {LEVEL}")),
        (f"{LEVEL} 4", Reading("sleeping", f"notifyutil {LEVEL}")),
        (f"{LEVEL} 5\n", Reading()),
        (f"{LEVEL}: Failed with code 9\n", Reading()),
        ("", Reading()),
    ],
)
def test_the_thermal_pressure_of_a_mac_and_no_guess_where_there_is_no_answer(text, reading):
    assert condition.thermal_from_notifyutil(text) == reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Now drawing from 'AC Power'\n", "mains"),
        ("Now drawing from 'Battery Power'\n -InternalBattery-0 71%", "battery"),
        ("Now drawing from 'UPS Power'\n", "UPS Power"),
        ("", "unknown"),
    ],
)
def test_the_power_source_of_a_mac(text, value):
    assert condition.power_from_pmset(text).value == value


@pytest.mark.parametrize(("text", "value"), [("1\n", "normal"), ("2", "warning"), ("4", "critical"), ("", "unknown")])
def test_the_memory_pressure_of_a_mac(text, value):
    assert condition.pressure_from_sysctl(text).value == value


def test_the_memory_pressure_of_linux():
    text = "some avg10=1.25 avg60=0.50 avg300=0.10 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"

    assert condition.pressure_from_psi(text) == Reading("some 1.25 % of 10 s", "/proc/pressure/memory")
    assert condition.pressure_from_psi("") == Reading()


def test_this_machine_gives_a_value_and_a_source_for_each_or_unknown_for_both():
    now = condition.read()

    for reading in (now.thermal, now.power, now.memory_pressure):
        assert (reading.value == "unknown") == (reading.source == "unknown")
