"""NVIDIA devices, over a library with NVML's documented structures and errors."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from bridge.executor.observe.accelerators.cards import find_cards
from bridge.executor.observe.accelerators.find import find_meter, given_devices
from bridge.executor.observe.accelerators.interface import GpuReading
from bridge.executor.observe.accelerators.nvidia import NvidiaMeter, conditions, slowed_by
from bridge.records.jobspec import EnvironmentVariable


class Nvml(ModuleType):
    """Two cards; the second one keeps no samples of processes, as in MIG mode."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    def __init__(self):
        super().__init__("pynvml")
        self.samples = []

    def nvmlInit(self):
        pass

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}{handle}{handle}{handle}-11"

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=[80, 20][handle], memory=1)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=1000 * (handle + 1))

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=50), SimpleNamespace(pid=60 + handle)]

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        if handle:
            raise self.NVMLError("Not Supported")
        samples = [sample for sample in self.samples if sample.timeStamp > since]
        if not samples:
            raise self.NVMLError_NotFound("Not Found")
        return samples

    def nvmlDeviceGetPersistenceMode(self, handle):
        return 1

    def nvmlDeviceGetEccMode(self, handle):
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetMigMode(self, handle):
        return (0, 0)

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return 0x1 | 0x4 | 0x40


@pytest.fixture
def nvml(monkeypatch):
    library = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def sample(pid, at_s, percent):
    return SimpleNamespace(pid=pid, timeStamp=int(at_s * 1e6), smUtil=percent)


def test_the_share_of_each_process_is_added_up_over_the_time_since_the_sample_before(nvml):
    meter = NvidiaMeter(nvml, [0])
    nvml.samples = [sample(50, 100.0, 90)]
    assert meter.read({50}).own_s == 0.0  # what was before the first reading is nobody's
    nvml.samples += [sample(50, 101.0, 50), sample(60, 101.0, 40)]
    assert meter.read({50}).own_s == pytest.approx(0.5)
    assert meter.read({50}).own_s == pytest.approx(0.5)  # no sample since: not found
    nvml.samples += [sample(50, 103.0, 100)]
    assert meter.read({50, 60}).own_s == pytest.approx(0.5 + 0.4 + 2.0)


def test_load_and_memory_are_those_of_all_devices_and_strangers_are_counted_once(nvml):
    assert NvidiaMeter(nvml, [0, 1]).read({50}) == GpuReading(pytest.approx(0.5), 3000, 0, 2)
    assert NvidiaMeter(nvml, [1]).read({50}).own_s is None


@pytest.mark.parametrize(
    ("given", "places"), [(None, (0, 1)), (("1",), (1,)), (("GPU-0000",), (0,)), (("0", "GPU-1111-11"), (0, 1))]
)
def test_only_the_devices_that_a_run_was_given_are_read(nvml, given, places):
    meter = find_meter(given)
    assert meter.read(()).memory_bytes == sum(1000 * (place + 1) for place in places)


def test_a_list_that_names_none_of_the_cards_is_no_machine_without_cards(nvml, tmp_path):
    (tmp_path / "nvidia0").touch()
    assert [card.uuid for card in find_cards(("1", "GPU-0000"), tmp_path)] == ["GPU-0000-11", "GPU-1111-11"]
    assert find_cards(("MIG-1f2e",), tmp_path) is None
    assert find_cards((), tmp_path) == ()


def test_devices_that_are_not_there_and_a_driver_that_is_not_are_said(nvml):
    assert find_meter(("7",)) == "unknown: NVML sees none of 7"
    assert find_meter(()) == "unknown: NVML sees none of the devices that the run got: it got none"
    nvml.nvmlDeviceGetCount = lambda: 0
    assert find_meter() == "unknown: NVML sees no device"
    nvml.nvmlInit = lambda: (_ for _ in ()).throw(nvml.NVMLError("Driver Not Loaded"))
    assert find_meter() == "unknown: NVML says Driver Not Loaded"


def test_the_environment_of_a_run_names_its_devices():
    def variables(**values):
        return [EnvironmentVariable(name=name, value=value, origin="preset") for name, value in values.items()]

    assert given_devices(variables(A="1")) is None
    assert given_devices(variables(CUDA_VISIBLE_DEVICES="1, GPU-7")) == ("1", "GPU-7")
    assert given_devices(variables(CUDA_VISIBLE_DEVICES="")) == ()


def test_what_changes_the_speed_of_a_card_is_told_and_what_it_does_not_say_is_left_out(nvml):
    assert conditions(nvml, 0) == {
        "persistence": "on",
        "mig": "off",
        "sm_clock": "1980 MHz",
        "power_limit": "700 W",
        "slowed_by": "its power cap, heat (hardware)",
    }
    assert slowed_by(0x1 | 0x2) == "nothing"


def test_the_published_binding_has_every_name_that_is_used():
    binding = pytest.importorskip("pynvml", reason="the extra `torch` brings it")
    names = [name for name in vars(Nvml) if name.startswith(("nvml", "NVML"))]
    assert [name for name in names if not hasattr(binding, name)] == []
