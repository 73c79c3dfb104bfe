"""MLX computes its products with the OpenBLAS that is installed beside it, and says what it really calls."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="the MLX backend is not installed")

from engine.backends.mlx.backend import MlxBackend
from engine.backends.mlx.blas import slots
from engine.backends.mlx.blas.library import PRODUCTS, fast_library, kind_of, loaded_blas

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS has a fast library of its own")

FRESH = """
import sys
import mlx.core as mx, numpy as np
from engine.backends.mlx.blas.library import fast_library, loaded_blas, use_fast_blas

def products():
    made = np.random.default_rng(7)
    a, b = made.normal(size=(2, 40, 40))
    with mx.stream(mx.cpu):
        for kind in (np.float32, np.float64, np.complex64):
            x, y = (a + 1j * b).astype(kind) if kind is np.complex64 else a.astype(kind), b.astype(kind)
            got = np.array(mx.array(x, getattr(mx, kind.__name__)) @ mx.array(y, getattr(mx, kind.__name__)))
            assert np.abs(got - x @ y).max() < 1e-4, kind

sys.modules["scipy_openblas32"] = None
print(use_fast_blas().name, fast_library())
products()
del sys.modules["scipy_openblas32"]
print(use_fast_blas().evidence)
products()
print(use_fast_blas() == loaded_blas())
"""


def test_the_backend_computes_on_openblas() -> None:
    blas = MlxBackend().blas()
    assert blas is not None
    assert (blas.name, blas.evidence) == ("openblas", "libmlx.so calls cblas_sgemm of libscipy_openblas.so")


def test_a_fresh_process_calls_the_bundled_library_until_another_is_put_in_its_place() -> None:
    ran = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=240, check=True)
    assert ran.stdout.splitlines() == [
        "reference None",
        "libmlx.so calls cblas_sgemm of libscipy_openblas.so",
        "True",
    ]


BROKEN = """
from engine.backends.mlx.blas.library import fast_library, loaded_blas, use_fast_blas

print(fast_library())
print(use_fast_blas().evidence)
print(loaded_blas().name)
"""


@pytest.mark.parametrize("kind", ["no library", "another library"])
def test_a_broken_wheel_leaves_the_bundled_library_in_place(tmp_path: Path, kind: str) -> None:
    library = tmp_path / "scipy_openblas32" / "lib" / "libscipy_openblas.so"
    library.parent.mkdir(parents=True)
    (library.parents[1] / "__init__.py").touch()
    if kind == "no library":
        library.write_bytes(b"cut off")
    else:
        library.symlink_to(
            next(mapping.path for mapping in slots.mappings() if mapping.path.name.startswith("libc.so"))
        )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run(
        [sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=240, check=True, env=environment
    )
    used, evidence, name = ran.stdout.splitlines()
    assert used == str(library)
    assert "; scipy_openblas32 cannot be used: " in evidence
    assert name == "reference"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3", "openblas"),
        ("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.12.0", "reference"),
        ("/home/openblas/venv/lib/mlx.libs/libblas-4bb4b1a0.so.3.9.0", "reference"),
        ("/opt/lib/libmkl_rt.so.2", "mkl"),
    ],
)
def test_a_library_is_known_by_its_file_or_the_folder_that_a_distribution_keeps_it_in(path: str, kind: str) -> None:
    assert kind_of(Path(path)) == kind


def test_the_answer_follows_the_slot_and_not_what_else_is_loaded() -> None:
    MlxBackend()
    mlx = next(mapping.path for mapping in slots.mappings() if mapping.path.name == "libmlx.so")
    by_name = slots.slots(mlx, PRODUCTS | {"no_such_function"})
    assert by_name.keys() == PRODUCTS
    slot, fast = by_name["cblas_sgemm"], by_name["cblas_sgemm"].target()
    try:
        # Nothing multiplies until it is put back.
        slot.redirect(ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value)
        blas = loaded_blas()
        assert blas is not None
        assert blas.name == "reference"
        assert "libc" in blas.evidence
    finally:
        slot.redirect(fast)
    assert fast_library() is not None
    assert slots.mapping_at(slot.target()) == slots.mapping_at(fast)


def test_a_library_that_is_not_loaded_has_no_slots() -> None:
    with pytest.raises(OSError, match="nowhere"):
        slots.slots(Path("/nowhere/libnone.so"), PRODUCTS)
