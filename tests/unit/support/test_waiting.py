from __future__ import annotations

import pytest

from tests.support.waiting import until


def test_the_first_true_answer_is_returned() -> None:
    answers = iter([0, [], 7, 8])
    assert until(lambda: next(answers)) == 7


def test_what_never_happens_ends_with_the_reason() -> None:
    for why in ("never came", lambda: "never came"):
        with pytest.raises(AssertionError, match=r"never came, within 0\.0 s"):
            until(lambda: False, patience_s=0.0, why=why)
