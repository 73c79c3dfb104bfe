"""What a plan of memory refuses before it looks at a target."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import UsageError
from engine.structure.layout import CacheLayout
from engine.studies.bounded_kv import MemoryPlan


@pytest.mark.parametrize(
    ("contexts", "message"),
    [((), "expected at least one"), ((0, 64), "expected at least one"), ((64, 64), "each once")],
)
def test_contexts_that_measure_no_growth_are_refused(contexts: tuple[int, ...], message: str) -> None:
    plan = MemoryPlan(
        CacheLayout.NATIVE,
        native=True,
        repeat=0,
        process=1,
        contexts=contexts,
        decode_tokens=32,
        chunk_tokens=512,
        ids=(7,) * 200,
    )
    nobody: Any = None
    with pytest.raises(UsageError, match=message):
        plan.check(nobody)
