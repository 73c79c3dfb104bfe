"""Claims on accelerators: seen busy, unseen, asleep, contradictory."""

from __future__ import annotations

import functools

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.turned import in_turns

DEVICES = {"metal:0": "metal:0 Apple M4 Max", "cuda:0": "cuda:0 NVIDIA H100"}


@functools.cache
def honest():
    return in_turns()


def on(
    device, *, recorded=True, share=0.9, own=(0.8, 0.8), used=0.5, strangers=0, slept_s=0.0, conditions=(), built=None
):
    """Return an honest run of launches on a device.

    Args:
        device: what the report says.
        recorded: whether the runner knows a device.
        share: of the device, in every sample; None without a source.
        own: seconds on the device by wall second, of each arm alone; None without a source.
        used: seconds on the device by wall second, over the run.
        strangers: other processes that work on it.
        slept_s: how long the machine slept.
        conditions: name, before, after.
        built: which CUDA torch was built for, on a driver that has 12.4.
    """
    case = honest().copy()
    case.report["environment"]["device"] = device
    case.record["host"]["devices"] = [DEVICES[device]] if recorded else []
    for sample in case.record["telemetry"]["samples"]:
        sample["gpu_share"] = share
        sample["gpu_strangers"] = strangers
        sample["gpu_own_s"] = None if own is None else used * sample["t_s"]
    case.record["telemetry"]["slept_s"] = slept_s
    if built is not None:
        case.record["host"]["drivers"] = {"cuda": "12.4"}
        case.record["code"]["packages"] |= {"torch": "2.9.1", "nvidia-cuda-runtime-cu12": built}
    case.record["telemetry"]["conditions"] = [
        {"name": name, "before": before, "after": after, "source": "a test"} for name, before, after in conditions
    ]
    for launch in case.record["launches"]:
        for stretch in launch["solos"]:
            stretch["cpu_s"] = 0.0  # the device works, not the processor
            wall_s = stretch["done_s"] - stretch["go_s"]
            place = ("autoregressive", "speculative").index(stretch["arm"])
            stretch["gpu_s"] = None if own is None else own[place] * wall_s
    case.seal()
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


def findings(verdict):
    codes = {"G3-ACCELERATOR", "G5-SOLO", "G5-CLOCK", "G8-STATE"}
    return {(finding.code, finding.severity): finding.message for finding in verdict.findings if finding.code in codes}


def speed(verdict):
    return next(claim for claim in verdict.claims if claim.id == "decode_speedup")


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_that_both_arms_kept_busy_takes_nothing_from_the_times(device):
    verdict = on(device)
    assert findings(verdict) == {}
    assert speed(verdict).decision == "evidence", speed(verdict).why
    assert "unseen" not in speed(verdict).wording


@pytest.mark.parametrize("device", DEVICES)
def test_without_a_source_the_ratio_stands_and_says_that_nobody_saw_who_worked(device):
    verdict = on(device, share=None, own=None)
    assert findings(verdict).keys() == {("G3-ACCELERATOR", "note")}
    assert speed(verdict).decision == "evidence", speed(verdict).why
    assert f"who worked on {device} unseen" in speed(verdict).wording


def test_an_arm_that_sleeps_alone_loses_the_times_by_name():
    verdict = on("metal:0", own=(0.8, 0.1))
    assert findings(verdict) == {
        ("G5-SOLO", "violation"): "arm 'speculative' alone kept metal:0 busy 0.10 of the time, the other 0.80"
    }
    assert "times" in speed(verdict).missing


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"recorded": False}, "the report says 'metal:0', the runner knows no such device"),
        ({"share": 0.01}, "'metal:0' was never more than 1 % busy"),
        ({"own": (0.0, 0.0), "used": 0.0}, "no process of the run worked on 'metal:0' while its arms ran alone"),
        ({"used": 3.0}, "the sources contradict each other"),
    ],
)
def test_a_source_that_says_otherwise_loses_the_times_by_name(changed, message):
    verdict = on("metal:0", **changed)
    assert message in findings(verdict)["G3-ACCELERATOR", "violation"]
    assert "times" in speed(verdict).missing


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"strangers": 2}, "2 other processes worked on the accelerator"),
        ({"conditions": [("low_power", "off", "on")]}, "low power mode was on"),
        ({"conditions": [("swap_used", "0 bytes", "268435456 bytes")]}, "swap grew by 256 MiB, at most 64"),
        ({"conditions": [("gpu0.mig", "on", "on")]}, "gpu0 is split (MIG): others may work on the same card"),
        ({"conditions": [("gpu0.ecc", "on", "off")]}, "gpu0.ecc was changed from on to off"),
        ({"conditions": [("gpu0.slowed_by", "nothing", "heat (hardware)")]}, "gpu0 was slowed by heat (hardware)"),
    ],
)
def test_a_machine_that_was_not_at_its_own_speed_takes_absolute_numbers_only(changed, message):
    verdict = on("cuda:0", **changed)
    assert findings(verdict) == {("G8-STATE", "violation"): message}
    assert speed(verdict).decision == "evidence", speed(verdict).why
    absolute = next(claim for claim in verdict.claims if claim.id == "baseline_tokens_per_s")
    assert "machine" in absolute.missing
    assert "machine" not in speed(verdict).missing


def test_a_driver_older_than_what_torch_was_built_for_takes_the_machine():
    message = "the driver has CUDA 12.4, older than the 12.8 that torch was built for"
    assert findings(on("cuda:0", built="12.8.90"))["G8-STATE", "violation"] == message
    assert ("G8-STATE", "violation") not in findings(on("cuda:0", built="12.4.127"))


def test_a_machine_that_slept_in_mid_run_loses_the_times():
    verdict = on("metal:0", slept_s=10_800.0)
    assert findings(verdict) == {("G5-CLOCK", "violation"): "the machine slept 10800.0 s during the run"}
    assert "times" in speed(verdict).missing
