"""A row of a benchmark carries the name of what was decoded."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from engine.cli import bench
from engine.drafters.ngram import LONGEST_DRAFT, NgramModel
from engine.errors import UsageError


def test_a_depth_that_no_drafter_drafts_at_names_no_row() -> None:
    engine: Any = SimpleNamespace(drafter=NgramModel())
    with pytest.raises(UsageError, match=f"--depths 32; ngram proposes at most {LONGEST_DRAFT} tokens a step"):
        bench._depths(argparse.Namespace(depths="3,32"), engine)


def test_a_budget_with_nothing_to_time_is_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.main(["controller", "--max-new", "1", "--target", "no such target"]) == 2
    assert "--max-new 1: the first token is the prompt's; expected at least 2" in capsys.readouterr().err
