"""Which matrix library MLX's CPU build calls in this process, found from the process itself.

The dynamic linker resolves `cblas_sgemm` in the global scope first, so a preloaded library wins over the bundled one.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from engine.types import BlasInfo

_MAPS = Path("/proc/self/maps")
_KNOWN = (("openblas", "openblas"), ("mkl", "mkl"), ("blis", "blis"), ("atlas", "atlas"))


def loaded_blas() -> BlasInfo | None:
    """Return the library behind `cblas_sgemm`, or None where the process maps none (MLX not imported, or not Linux)."""
    if not _MAPS.exists():
        return None
    mapped = _mapped_libraries()
    address = _global_sgemm()
    if address is not None:
        for start, end, name in mapped:
            if start <= address < end:
                return BlasInfo(_kind(name), f"cblas_sgemm resolves to {name}")
    bundled = sorted({name for _, _, name in mapped if name.startswith(("libblas", "libcblas", "libopenblas-"))})
    if not bundled:
        return None
    return BlasInfo(_kind(bundled[0]), f"no global cblas_sgemm; {bundled[0]} is bundled with the wheel")


def _global_sgemm() -> int | None:
    try:
        return ctypes.cast(ctypes.CDLL(None).cblas_sgemm, ctypes.c_void_p).value
    except AttributeError:
        return None


def _mapped_libraries() -> list[tuple[int, int, str]]:
    found = []
    for line in _MAPS.read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and ".so" in fields[5]:
            start, end = (int(part, 16) for part in fields[0].split("-"))
            found.append((start, end, Path(fields[5]).name))
    return found


def _kind(name: str) -> str:
    return next((kind for key, kind in _KNOWN if key in name.lower()), "reference")
