"""What an environment probe reports: named checks and the rate of a small matrix product.

Knows no array library: `engine.backends.<name>.probe` measures, this module gives the measurements one shape.
A check that could not be made is a failed check, never an absent one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

BACKENDS = ("mlx", "torch")


@dataclass(frozen=True)
class ProbeCheck:
    """One question to the machine.

    Attributes:
        ok: whether the answer is the wanted one.
        required: whether the machine is unfit without it.
        detail: the answer for people; value: the same for programs, None when there is none.
    """

    name: str
    ok: bool
    required: bool
    detail: str
    value: Any = None


@dataclass(frozen=True)
class MatmulRate:
    """Square matrix products of size n: seconds of each repeat, device synchronised, and the median rate."""

    backend: str
    device: str
    dtype: str
    n: int
    seconds: tuple[float, ...]
    gflop_per_s: float
    max_abs_error: float

    @classmethod
    def of(cls, backend: str, device: str, n: int, seconds: Sequence[float], error: float) -> MatmulRate:
        """Return the rate of float32 products that took ``seconds``."""
        rate = 2 * n**3 / statistics.median(seconds) / 1e9
        return cls(backend, device, "float32", n, tuple(seconds), rate, error)

    def answer(self, tolerance: float) -> tuple[bool, str, Any]:
        """Return whether the product is right, and its rate."""
        said = f"{self.n}x{self.n} {self.dtype}: {self.gflop_per_s:.1f} GFLOP/s, max error {self.max_abs_error:.1e}"
        return self.max_abs_error <= tolerance, said, self.gflop_per_s


@dataclass(frozen=True)
class ProbeResult:
    """All checks and rates of one backend, and the facts the report's environment needs."""

    backend: str
    device: str
    checks: tuple[ProbeCheck, ...]
    matmul: tuple[MatmulRate, ...]
    versions: dict[str, str]
    blas: dict[str, str] | None

    @property
    def ok(self) -> bool:
        """Whether every required check is."""
        return all(check.ok for check in self.checks if check.required)

    def rows(self) -> dict[str, Any]:
        """Return the raw rows of the report."""
        return {
            "checks": [asdict(check) for check in self.checks],
            "matmul": [asdict(rate) | {"seconds": list(rate.seconds)} for rate in self.matmul],
        }


def attempt(name: str, question: Callable[[], tuple[bool, str, Any]], *, required: bool = True) -> ProbeCheck:
    """Ask one question; an exception is the answer no, with its text."""
    try:
        ok, detail, value = question()
    except Exception as error:  # noqa: BLE001  a probe reports whatever breaks
        return ProbeCheck(name, False, required, f"{type(error).__name__}: {error}"[:400])
    return ProbeCheck(name, ok, required, detail, value)


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those of the packages that are installed."""
    found = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def probe(backend: str, *, accelerator: bool) -> ProbeResult:
    """Measure one backend.

    Args:
        backend: one of BACKENDS.
        accelerator: whether a GPU is required.

    Raises:
        ValueError: unknown backend.
    """
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; expected one of {', '.join(BACKENDS)}")
    module = importlib.import_module(f"engine.backends.{backend}.probe")
    result: ProbeResult = module.measure(accelerator=accelerator)
    return result
