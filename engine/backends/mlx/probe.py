"""Ask MLX what it can do here. Imports nothing of MLX until asked, so that a broken installation is an answer."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Any

from engine.backends.probing import MatmulRate, ProbeCheck, ProbeResult, attempt, versions

PACKAGES = ("mlx", "mlx-metal", "mlx-cpu", "mlx-lm", "numpy")
SIZE = 512
REPEATS = 7
TOLERANCE = 1e-3  # fp32 sums of 512 products of numbers below 1

CPU_NOTE = (
    "CPU timing says nothing about Metal: with a reference BLAS a verify of 8 rows is compute-bound, "
    "the opposite of a GPU"
)
SPEED_UP = "install OpenBLAS for it: python -m pip install scipy-openblas32"


def measure(*, accelerator: bool) -> ProbeResult:
    """Run all MLX checks; `accelerator` makes Metal a requirement."""
    checks = [attempt("mlx imports", _imports), attempt("mlx_lm imports", _imports_lm)]
    if not all(check.ok for check in checks):
        checks.append(ProbeCheck("matrix product", False, True, "not run: the libraries do not import"))
        return ProbeResult("mlx", "none", tuple(checks), (), versions(PACKAGES), None)
    checks.append(attempt("metal", _metal, required=accelerator))
    checks.append(attempt("mlx.distributed", _distributed, required=False))
    rates: list[MatmulRate] = []
    blas = _blas()
    checks.append(attempt("matrix product", lambda: _matmul(rates)))
    if sys.platform == "linux":
        checks.append(attempt("fast BLAS", lambda: _fast_blas(blas), required=False))
    return ProbeResult("mlx", _device(), tuple(checks), tuple(rates), versions(PACKAGES), blas)


def _imports() -> tuple[bool, str, Any]:
    core = importlib.import_module("mlx.core")
    return True, f"mlx {core.__version__}", core.__version__


def _imports_lm() -> tuple[bool, str, Any]:
    importlib.import_module("mlx_lm")
    version = importlib.metadata.version("mlx-lm")
    return True, f"mlx-lm {version}", version


def _device() -> str:
    import mlx.core as mx

    return "metal" if mx.default_device().type == mx.DeviceType.gpu else "cpu"


def _metal() -> tuple[bool, str, Any]:
    import mlx.core as mx

    if not mx.metal.is_available():
        return False, f"no Metal device; MLX runs on the {_device()}. {CPU_NOTE}", None
    info = dict(mx.device_info())
    return True, f"{info.get('device_name', 'unnamed device')}", {key: info[key] for key in sorted(info)}


def _distributed() -> tuple[bool, str, Any]:
    import mlx.core as mx

    available = {name: bool(mx.distributed.is_available(name)) for name in ("ring", "mpi")}
    return (
        any(available.values()),
        ", ".join(f"{name}: {'yes' if ok else 'no'}" for name, ok in available.items()),
        available,
    )


def _matmul(rates: list[MatmulRate]) -> tuple[bool, str, Any]:
    import mlx.core as mx

    from engine.backends.mlx.clock import MlxClock

    clock = MlxClock()
    a = mx.random.uniform(shape=(SIZE, SIZE), key=mx.random.key(1))
    b = mx.random.uniform(shape=(SIZE, SIZE), key=mx.random.key(2))
    mx.eval(a @ b)
    seconds = []
    for _ in range(REPEATS):
        start = clock.now_ns()
        product = a @ b
        mx.eval(product)
        seconds.append((clock.now_ns() - start) / 1e9)
    error = _error(a, b, product)
    rates.append(MatmulRate.of("mlx", _device(), SIZE, seconds, error))
    return rates[-1].answer(TOLERANCE)


def _error(a: Any, b: Any, product: Any) -> float:
    """Return the largest relative difference to Python's own sums over a spread of 32 entries."""
    rows, columns = a.tolist(), b.tolist()
    worst = 0.0
    for index in range(32):
        i, j = (index * 37) % SIZE, (index * 101) % SIZE
        exact = sum(x * columns[k][j] for k, x in enumerate(rows[i]))
        worst = max(worst, abs(float(product[i, j]) - exact) / abs(exact))
    return worst


def _blas() -> dict[str, str] | None:
    if sys.platform != "linux":
        return None
    from engine.backends.mlx.blas.library import use_fast_blas

    found = use_fast_blas()
    return None if found is None else {"name": found.name, "evidence": found.evidence}


def _fast_blas(blas: dict[str, str] | None) -> tuple[bool, str, Any]:
    if blas is None:
        return False, f"no BLAS library is mapped; {SPEED_UP}", None
    fast = blas["name"] != "reference"
    return fast, blas["evidence"] if fast else f"{blas['evidence']}; {SPEED_UP}", blas["name"]
