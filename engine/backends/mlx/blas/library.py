"""Which matrix library MLX's CPU build calls in this process, and replacing the reference one it is shipped with.

MLX's Linux wheel links a reference BLAS of a few GFLOP/s, with which verifying a block costs nearly a decode per row.
The wheel ``scipy-openblas32`` brings OpenBLAS under names of its own, so it is put into the slots through which MLX
calls; a library that was preloaded is left alone.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from engine.backends.mlx.blas.slots import CallSlot, mapping_at, mappings, slots
from engine.types import BlasInfo

PRODUCTS = frozenset({"cblas_sgemm", "cblas_dgemm", "cblas_cgemm"})
"""What MLX calls for products; its decompositions stay with the bundled library."""
PACKAGE, PREFIX = "scipy_openblas32", "scipy_"
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
_CALLER = "libmlx.so"
_KNOWN = ("openblas", "mkl", "blis", "atlas")


def use_fast_blas() -> BlasInfo | None:
    """Let MLX compute its products with the OpenBLAS of the wheel where it would use a reference library.

    Returns:
        What MLX calls from now on, None where it calls no BLAS. Without the wheel, or with one that cannot be used,
        that is what it called before; the evidence then names what is wrong with the wheel.
    """
    found = loaded_blas()
    library = fast_library()
    if found is None or found.name != "reference" or library is None:
        return found
    try:
        _redirect(library)
    except (AttributeError, OSError) as error:
        return replace(found, evidence=f"{found.evidence}; {PACKAGE} cannot be used: {error}")
    return loaded_blas()


def fast_library() -> Path | None:
    """Return the shared object of the installed wheel, None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted((Path(spec.origin).parent / "lib").glob("libscipy_openblas*.so"))), None)


def loaded_blas() -> BlasInfo | None:
    """Return the library whose ``cblas_sgemm`` MLX calls, None where it calls none (Metal's build, or not Linux)."""
    try:
        slot = _product_slots().get("cblas_sgemm")
    except OSError:
        return None
    if slot is None:
        return None
    called = mapping_at(slot.target())
    if called is None or called.path.name == _CALLER:
        # Not looked up yet: the linker does that at the first call.
        with mx.stream(mx.cpu):
            mx.eval(mx.ones((2, 2)) @ mx.ones((2, 2)))
        called = mapping_at(slot.target())
    path = Path("an unnamed mapping") if called is None else called.path
    return BlasInfo(kind_of(path), f"{_CALLER} calls cblas_sgemm of {path.name}")


def _redirect(library: Path) -> None:
    """Have MLX call a library for its products: for all of them, or for none if it lacks one.

    Raises:
        AttributeError: If it lacks a function.
        OSError: If it cannot be loaded, or a slot not be written.
    """
    fast = ctypes.CDLL(str(library))
    threads = getattr(fast, PREFIX + "openblas_set_num_threads")
    found = {name: ctypes.cast(getattr(fast, PREFIX + name), ctypes.c_void_p).value for name in PRODUCTS}
    if not any(os.environ.get(name) for name in THREADS):
        # MLX computes on one thread here, and rows of a decode are too few to share: more threads only wait.
        threads(1)
    for name, slot in _product_slots().items():
        function = found[name]
        if function is not None:
            slot.redirect(function)


def _product_slots() -> dict[str, CallSlot]:
    """Return MLX's slots for products.

    Raises:
        OSError: If MLX's library is not mapped here, or its slots cannot be read.
    """
    path = next((found.path for found in mappings() if found.path.name == _CALLER), None)
    if path is None:
        raise OSError(f"{_CALLER} is not mapped into this process")
    return slots(path, PRODUCTS)


def kind_of(path: Path) -> str:
    """Return which library a shared object is, by its file's name and its folder's.

    Distributions keep each under one name for all, such as ``openblas-pthread/libblas.so.3``.
    """
    known = f"{path.parent.name}/{path.name}".lower()
    return next((kind for kind in _KNOWN if kind in known), "reference")
