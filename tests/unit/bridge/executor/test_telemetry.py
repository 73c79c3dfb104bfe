from __future__ import annotations

import itertools
from collections.abc import Collection

import pytest

from bridge.executor.observe.accelerators.interface import GpuReading
from bridge.executor.observe.telemetry import INTERVAL_S, MachineTimes, Sampler
from bridge.executor.processes.tree import Usage


def test_samples_keep_their_distance():
    machine = (MachineTimes(tick * 0.1, tick * 0.2) for tick in itertools.count())
    sampler = Sampler(machine=lambda: next(machine))
    for tick in range(50):
        sampler.usage(tick * 0.1, Usage(1, 1000 + tick, tick * 0.05))
    record = sampler.record()

    times = [sample.t_s for sample in record.samples]
    assert all(later - earlier >= INTERVAL_S - 0.11 for earlier, later in itertools.pairwise(times))
    assert len(times) >= 8
    assert record.samples[0].cpu_share is None
    assert all(sample.cpu_share is not None for sample in record.samples[1:])


def test_a_long_run_is_thinned_and_the_interval_says_so():
    sampler = Sampler()
    for tick in range(4000):
        sampler.usage(tick * INTERVAL_S, Usage(1, 1, 0.0))
    record = sampler.record()

    assert 300 <= len(record.samples) <= 600
    assert record.interval_s >= 4 * INTERVAL_S
    assert record.samples[-1].t_s > 0.9 * 4000 * INTERVAL_S


def test_every_source_is_named():
    record = Sampler().record()

    assert set(record.sources) == {
        "cpu_share",
        "other_cpu_share",
        "rss_bytes",
        "gpu",
        "thermal",
        "power",
        "memory_pressure",
    }
    assert all(record.sources.values())


def test_without_a_gpu_meter_the_shares_are_none_and_the_source_says_why():
    sampler = Sampler(gpu="unknown: no device")
    sampler.usage(0.0, Usage(1, 1, 0.0))
    record = sampler.record()

    assert record.samples[0].gpu_share is None
    assert record.sources["gpu"] == "unknown: no device"


def test_a_gpu_meter_is_read_with_every_sample():
    class Meter:
        source = "a test"

        def read(self, pids: Collection[int]) -> GpuReading:
            return GpuReading(0.5, 4096, own_s=0.25 * len(pids), strangers=3)

        def conditions(self) -> dict[str, str]:
            return {"gpu0.mig": "off"}

    sampler = Sampler(gpu=Meter())
    sampler.usage(0.0, Usage(2, 1, 0.0, pids=frozenset({7, 8})))
    record = sampler.record()
    sample = record.samples[0]

    assert (sample.gpu_share, sample.gpu_memory_bytes) == (pytest.approx(0.5), 4096)
    assert (sample.gpu_own_s, sample.gpu_strangers, record.sources["gpu"]) == (pytest.approx(0.5), 3, "a test")
    assert ("gpu0.mig", "off", "off", "a test") in [
        (condition.name, condition.before, condition.after, condition.source) for condition in record.conditions
    ]


def test_a_processor_reading_that_comes_late_makes_no_share_above_one():
    # Two full processors: between half-second samples, the second reading waits for a core for .4 s.
    readings = iter([MachineTimes(10.0, 10.0), MachineTimes(11.8, 11.8), MachineTimes(12.0, 12.4)])
    sampler = Sampler(gpu="unknown: no device", machine=lambda: next(readings))
    for t_s, cpu_s in ((0.0, 0.0), (0.5, 0.45), (1.0, 0.54)):
        sampler.usage(t_s, Usage(1, 1, cpu_s))
    shares = [(sample.cpu_share, sample.other_cpu_share) for sample in sampler.record().samples]

    assert shares[0] == (None, None)
    assert shares[1] == (pytest.approx(0.25), pytest.approx(0.75))
    assert shares[2] == (pytest.approx(0.15), pytest.approx(0.2 / 0.6 - 0.15))
