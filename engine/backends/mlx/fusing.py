"""Tracing without fusing, where MLX would compile each fused kernel with a C++ compiler.

On a CPU MLX writes every fused kernel out as C++ and runs the system's compiler on it: seconds for the kernels of a
step, spent again by every process that has a temporary folder of its own. Its Python package cannot turn that off
alone, so the setting of the shared object that is loaded is called.

Before its first trace MLX asks the shell for that compiler, and without one it traces nothing: Python then builds the
graph of every step anew. Tracing alone needs no compiler, so the question is answered, and nothing is fused.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from engine.backends.mlx.blas.slots import CallSlot, slots

_SET_MODE = "_ZN3mlx4core16set_compile_modeENS0_11CompileModeE"
_WITHOUT_FUSING, _FULL = 2, 3
"""Of MLX's ``CompileMode``."""
_ASK = "system"
_Answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
"""How MLX asks the shell: the C library's function and its type."""


class Unfused:
    """While it is entered, functions are traced without fusing on a CPU; elsewhere it changes nothing.

    The setting is the whole process's: fusing comes back when the last thread has left.
    """

    _lock = threading.Lock()
    _inside = 0

    def __init__(self) -> None:
        self._set_mode = _setter() if mx.default_device() == mx.Device(mx.cpu) else None

    def __enter__(self) -> None:
        """Turn fusing off."""
        self._count(1)

    def __exit__(self, *_: object) -> None:
        """Turn fusing on again."""
        self._count(-1)

    def _count(self, added: int) -> None:
        if self._set_mode is None:
            return
        with Unfused._lock:
            Unfused._inside += added
            self._set_mode(_WITHOUT_FUSING if Unfused._inside else _FULL)


def trace_without_compiler() -> None:
    """Have MLX trace functions where there is no C++ compiler, on a CPU under Linux; elsewhere it changes nothing.

    Call it before anything is compiled: MLX asks once. Nothing is fused in this process if there is none.
    """
    slot = _asking()
    if slot is None:
        return
    # It keeps the interpreter's lock: MLX holds one of its own while it asks, for which another thread may wait.
    shell = ctypes.PyDLL(None).system
    missing: list[bytes] = []

    @_Answer
    def answer(command: bytes) -> int:
        missing.extend([command] if shell(command) else [])
        return 0

    asked = slot.target()
    try:
        slot.redirect(ctypes.cast(answer, ctypes.c_void_p).value or asked)
    except OSError:  # its page cannot be written: MLX goes without, as it does by itself
        return
    try:
        with Unfused():
            mx.compile(_one_more)(mx.ones(1))
    finally:
        slot.redirect(asked)
    if missing:
        Unfused().__enter__()


def _one_more(value: mx.array) -> mx.array:
    return value + 1


def _asking() -> CallSlot | None:
    """Return where MLX keeps the function by which it asks for a compiler, None where it asks for none."""
    if _setter() is None:  # it would be answered, then fuse, and call the compiler that is not there
        return None
    try:
        return slots(_library(), frozenset({_ASK})).get(_ASK)
    except OSError:
        return None


def _setter() -> Callable[[int], None] | None:
    """Return MLX's setting, None where it has none or nothing is to be compiled at all."""
    library = _library()
    if os.environ.get("MLX_DISABLE_COMPILE") or not library.is_file():
        return None
    # It is loaded already; PyDLL keeps the interpreter's lock, since the call takes no time.
    found: Any = getattr(ctypes.PyDLL(str(library)), _SET_MODE, None)
    if found is not None:
        found.argtypes, found.restype = [ctypes.c_int], None
    return found


def _library() -> Path:
    return Path(str(mx.__file__)).parent / "lib" / "libmlx.so"
