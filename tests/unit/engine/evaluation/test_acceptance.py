"""A walk over known greedy tokens takes the steps a speculative run would take."""

from __future__ import annotations

import statistics

import pytest

from engine.cards.acceptance import Walk, ngram_walk, summarise, walk

TOKENS = [9, 9, 1, 2, 3, 4, 5, 6]


def test_a_right_drafter_commits_whole_blocks():
    result = walk(TOKENS, 2, lambda position: TOKENS[position + 1 : position + 4])
    assert result == Walk((3, 1), 5)
    assert result.acceptance_length == 2.5


def test_a_wrong_or_silent_drafter_commits_one_token_a_step():
    assert walk(TOKENS, 2, lambda position: [77, 77]).accepted_per_step == (0,) * 5
    assert walk(TOKENS, 2, lambda position: []).acceptance_length == 1.0


def test_a_draft_counts_only_up_to_its_first_wrong_token():
    assert walk(TOKENS, 2, lambda position: [TOKENS[position + 1], 77, 77]).accepted_per_step == (1, 1, 1)


def test_the_ngram_walk_accepts_repeats_of_the_prompt():
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    result = ngram_walk([*prompt, 1, 2, 3, 4, 5, 6, 7, 8], len(prompt), 3)
    assert result.committed == 7
    assert max(result.accepted_per_step) == 3


def test_a_summary_reports_mean_bounds_and_pooled_ratio():
    walks = [Walk((3, 3), 8), Walk((0, 0, 0, 0), 4)]
    summary = summarise("x", 4, walks)
    assert summary.mean == 2.5
    assert summary.lower < 2.5 < summary.upper
    assert summary.pooled == 2.0
    with pytest.raises(ValueError, match="no prompts"):
        summarise("x", 4, [])


def test_the_bounds_of_a_summary_are_those_of_95_in_100_means():
    walks = [Walk((accepted,), accepted + 1) for accepted in range(10) for _ in range(20)]
    error = statistics.stdev(item.acceptance_length for item in walks) / len(walks) ** 0.5
    summary = summarise("x", 11, walks)
    assert (summary.upper - summary.lower) / 2 == pytest.approx(1.96 * error, rel=0.06)
