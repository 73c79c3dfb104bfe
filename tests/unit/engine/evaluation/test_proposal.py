"""The proposed depth is the fastest one that drafts, and its line compares each with plain decoding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.drafters.ngram import NgramModel
from engine.errors import UsageError
from engine.measurement.proposal import DepthTrial, TrialSettings, described, proposed, try_depths

TRIALS = (DepthTrial(0, 100, 1.0), DepthTrial(1, 100, 0.8), DepthTrial(3, 100, 0.5), DepthTrial(7, 100, 0.625))


def test_the_fastest_depth_is_proposed() -> None:
    assert proposed(TRIALS).depth == 3
    assert described(TRIALS) == "depth 3 (against plain decoding 1: 1.25x, 3: 2.00x, 7: 1.60x)"


def test_where_plain_decoding_is_fastest_the_least_slow_depth_is_proposed_and_said_to_be_slower() -> None:
    slow = (DepthTrial(0, 100, 0.1), *TRIALS[1:])
    assert proposed(slow).depth == 3
    assert "3: 0.20x" in described(slow)


def test_one_token_of_which_no_step_is_timed_proposes_nothing() -> None:
    engine: Any = SimpleNamespace(drafter=NgramModel())
    with pytest.raises(UsageError, match="expected --max-new of at least 2"):
        try_depths(engine, [(1, 2)], 3, TrialSettings(max_new_tokens=1))
