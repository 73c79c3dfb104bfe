"""Memory that was freed and kept by the C library is the system's again."""

from __future__ import annotations

import gc

import psutil
import pytest

from engine.generation import allocator


def test_what_was_freed_between_what_is_held_is_given_back() -> None:
    if allocator._trim() is None:
        pytest.skip("this C library has no malloc_trim")
    process = psutil.Process()
    blocks = [bytearray(64 << 10) for _ in range(1200)]
    for block in blocks:
        block[::4096] = b"x" * 16
    last = blocks[-1]
    del blocks
    gc.collect()
    before = process.memory_info().rss
    assert allocator.give_back()
    assert before - process.memory_info().rss > 50 << 20
    assert len(last) == 64 << 10
