"""What `ioreg` prints of the Apple GPU: samples in the form that nvtop's and others' readers document."""

from __future__ import annotations

import plistlib

import pytest

from bridge.executor.observe.accelerators.apple import AppleMeter, registry
from bridge.executor.observe.accelerators.interface import GpuReading


def client(number, creator, *nanoseconds):
    usage = [{"API": "Metal", "accumulatedGPUTime": spent, "lastSubmittedTime": 9} for spent in nanoseconds]
    return {"IORegistryEntryID": number, "IOUserClientCreator": creator, "AppUsage": usage}


def printed(*clients, share=37, memory=1 << 30):
    statistics = {"Device Utilization %": share, "In use system memory": memory, "recoveryCount": 0}
    below = {"IORegistryEntryID": 2, "IORegistryEntryChildren": list(clients)}
    return plistlib.dumps(
        [{"IORegistryEntryID": 1, "PerformanceStatistics": statistics, "IORegistryEntryChildren": [below]}]
    )


def test_device_and_clients_are_read_however_deep_they_lie():
    device = registry(printed(client(7, "pid 417, WindowServer", 10**9, 5 * 10**8), client(8, "pid 9000, python3", 0)))
    assert (device.share, device.memory_bytes) == (pytest.approx(0.37), 1 << 30)
    assert device.clients == {7: (417, 1.5), 8: (9000, 0.0)}


def test_the_time_of_a_closed_client_still_counts():
    states = [
        printed(client(7, "pid 9000, python3", 2 * 10**9), client(9, "pid 417, WindowServer", 10**9)),
        printed(client(8, "pid 9000, python3", 10**9), client(9, "pid 417, WindowServer", 3 * 10**9)),
    ]
    meter = AppleMeter(iter(states).__next__)
    assert meter.read({9000}).own_s == 2.0
    assert meter.read({9000}) == GpuReading(pytest.approx(0.37), 1 << 30, 3.0, 1)


def test_a_stranger_is_who_works_now_and_not_every_client():
    states = [printed(client(7, "pid 417, WindowServer", spent)) for spent in (10**9, 10**9 + 10**6, 2 * 10**9)]
    meter = AppleMeter(iter(states).__next__)
    assert [meter.read({9000}).strangers for _ in states] == [None, 0, 1]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"ioreg: error: can't obtain properties.",
        b"<plist><array/></plist>",
        plistlib.dumps([]),
        plistlib.dumps({"PerformanceStatistics": {}}),
        plistlib.dumps(["no entry"]),
        b"bplist00 and then nothing",
        b'<!DOCTYPE a [<!ENTITY b "c">]><plist><array><string>&b;</string></array></plist>',
    ],
)
def test_what_shows_no_accelerator_is_unseen(text):
    assert registry(text) is None
    assert AppleMeter(lambda: text).read({1}) == GpuReading()


def test_values_of_another_kind_are_unseen_one_by_one():
    odd = {"IORegistryEntryID": "9", "IOUserClientCreator": "pid 5, a", "AppUsage": [{"accumulatedGPUTime": 1}]}
    spent = {"IORegistryEntryID": 3, "IOUserClientCreator": "pid 6, b", "AppUsage": ["x", {"accumulatedGPUTime": -4}]}
    device = registry(printed(odd, spent, client(4, "no process"), "text", share="busy", memory=True))
    assert (device.share, device.memory_bytes, device.clients) == (None, None, {3: (6, 0.0)})
