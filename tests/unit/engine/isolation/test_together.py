"""Processes that run together: what each writes, and that none outlives another's failure or the limit."""

from __future__ import annotations

import pytest

from engine.errors import ChildError
from engine.isolation.children import run_together

ONCE = ("-n1", "-r1")
WAITS = (*ONCE, "import time; time.sleep(600)")


def test_each_ones_output_comes_back_in_order() -> None:
    outputs = run_together("two", "timeit", [(*ONCE, f"print({number})") for number in (7, 8)], 120.0)
    assert [text.splitlines()[0] for text in outputs] == ["7", "8"]


def test_the_one_that_failed_is_named_and_the_one_that_waits_for_it_is_ended() -> None:
    with pytest.raises(ChildError, match="two: rank 1 ended with 1: SystemExit: of its own"):
        run_together("two", "timeit", [WAITS, (*ONCE, "raise SystemExit('of its own')")], 120.0)


def test_what_hangs_is_ended() -> None:
    with pytest.raises(ChildError, match=r"not done after 0\.2 s; all 2 ranks were killed"):
        run_together("two", "timeit", [WAITS, WAITS], 0.2)
