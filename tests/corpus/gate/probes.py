"""Honest runs of what measures no generation: a probe of the machine, a suite of tests."""

from __future__ import annotations

from tests.corpus.gate.builders import Case, envelope
from tests.corpus.gate.runs import around


def probe(profile: str = "claim") -> Case:
    seconds = [9.305, 9.301, 9.322]
    value = envelope(
        "environment_probe",
        wall_s=42.5,
        profile=profile,
        config={"backend": "mlx", "accelerator_required": False},
        rows={
            "checks": [
                {"name": "import", "ok": True, "required": True, "detail": "mlx 0.32.4", "value": "0.32.4"},
                {"name": "matmul", "ok": True, "required": True, "detail": "max error 1e-6", "value": 1e-6},
                {"name": "metal", "ok": False, "required": False, "detail": "no Metal device", "value": None},
            ],
            "matmul": [
                {
                    "backend": "mlx",
                    "device": "cpu",
                    "dtype": "float32",
                    "n": 8192,
                    "seconds": seconds,
                    "gflop_per_s": 2 * 8192**3 / 9.305 / 1e9,
                    "max_abs_error": 1.1e-6,
                }
            ],
        },
        claims=[
            {
                "id": "checks",
                "metric": "required_checks_held",
                "arms": [],
                "value": 2.0,
                "unit": "checks",
                "wording": None,
            }
        ],
    )
    return around({"probe.json": value}, profile=profile, gate_profile="probe")


def suite(profile: str = "claim") -> Case:
    tests = [
        {"id": "tests/test_a.py::test_one", "outcome": "passed", "duration_s": 20.25, "reason": None},
        {"id": "tests/test_a.py::test_two[0.1]", "outcome": "passed", "duration_s": 41.5, "reason": None},
        {"id": "tests/test_b.py::test_gpu", "outcome": "skipped", "duration_s": 0.0, "reason": "no NVIDIA device"},
    ]
    value = envelope(
        "test_suite",
        wall_s=63.25,
        profile=profile,
        config={"paths": ["tests"], "marker": "", "require": []},
        rows={"exit_code": 0, "command": ["pytest", "-q", "tests"], "collected": 3, "tests": tests},
    )
    value["environment"].update({"backend": "none", "versions": {}, "blas": None})
    return around({"tests.json": value}, profile=profile, gate_profile="tests")
