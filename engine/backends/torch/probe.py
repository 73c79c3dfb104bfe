"""Ask torch what it can do here. Imports nothing of torch until asked, so that a broken installation is an answer."""

from __future__ import annotations

import importlib
import time
from typing import Any

from engine.backends.probing import MatmulRate, ProbeCheck, ProbeResult, attempt, versions

PACKAGES = ("torch", "transformers", "safetensors", "tokenizers", "numpy")
SIZE = 512
REPEATS = 7
TOLERANCE = 1e-3
OLDEST_TRANSFORMERS = "5.20"
"""What the layer-by-layer forward was written for."""


def measure(*, accelerator: bool) -> ProbeResult:
    """Run all torch checks; `accelerator` makes an NVIDIA device a requirement."""
    checks = [attempt("torch imports", _imports), attempt("transformers imports", _imports_transformers)]
    if not checks[0].ok:
        checks.append(ProbeCheck("matrix product", False, True, "not run: torch does not import"))
        return ProbeResult("torch", "none", tuple(checks), (), versions(PACKAGES), None)
    checks.append(attempt("cuda", _cuda, required=accelerator))
    rates: list[MatmulRate] = []
    checks.append(attempt("matrix product", lambda: _matmul(rates)))
    return ProbeResult("torch", _device(), tuple(checks), tuple(rates), versions(PACKAGES), _blas())


def _imports() -> tuple[bool, str, Any]:
    torch = importlib.import_module("torch")
    return True, f"torch {torch.__version__}", str(torch.__version__)


def _imports_transformers() -> tuple[bool, str, Any]:
    return fits(str(importlib.import_module("transformers").__version__))


def fits(version: str) -> tuple[bool, str, Any]:
    """Return whether the torch backend runs on a version of transformers, in words, and the version."""
    new_enough = _numbers(version) >= _numbers(OLDEST_TRANSFORMERS)
    return new_enough, f"transformers {version}, at least {OLDEST_TRANSFORMERS} is needed", version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _device() -> str:
    import torch

    return f"cuda:{torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else "cpu"


def _cuda() -> tuple[bool, str, Any]:
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "this torch build has no CUDA" if built is None else f"built for CUDA {built}, no usable device"
        return False, f"no NVIDIA device: {why}", None
    devices = [
        {
            "name": torch.cuda.get_device_name(index),
            "capability": list(torch.cuda.get_device_capability(index)),
            "memory_bytes": torch.cuda.get_device_properties(index).total_memory,
        }
        for index in range(torch.cuda.device_count())
    ]
    return True, ", ".join(str(device["name"]) for device in devices), devices


def _matmul(rates: list[MatmulRate]) -> tuple[bool, str, Any]:
    import torch

    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(1)
    a = torch.rand(SIZE, SIZE, generator=generator).to(place)
    b = torch.rand(SIZE, SIZE, generator=generator).to(place)
    product = a @ b
    seconds = []
    for _ in range(REPEATS):
        _synchronise(place)
        start = time.perf_counter_ns()
        product = a @ b
        _synchronise(place)
        seconds.append((time.perf_counter_ns() - start) / 1e9)
    exact = a.double().cpu() @ b.double().cpu()
    error = float(((product.double().cpu() - exact) / exact).abs().max())
    rates.append(MatmulRate.of("torch", _device(), SIZE, seconds, error))
    return rates[-1].answer(TOLERANCE)


def _synchronise(place: Any) -> None:
    import torch

    if place.type == "cuda":
        torch.cuda.synchronize()


def _blas() -> dict[str, str] | None:
    import torch

    if torch.cuda.is_available():
        return None
    lines = [line.strip() for line in torch.__config__.show().splitlines()]
    found = next((line for line in lines if "Math Kernel Library" in line or "BLAS_INFO" in line), "not stated")
    return {"name": "mkl" if "Math Kernel Library" in found else "unknown", "evidence": found[:200]}
