"""Contexts that an f_theta is fitted on have the length that was asked for, or are refused."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="f_thetas are fitted with torch")

from engine.checkpoint import ASSETS
from engine.cli.train import main
from engine.errors import UsageError
from engine.restoration.episodes import Episodes
from engine.tokenizer import read_tokenizer
from engine.training.corpus import read_corpus, word_pool

TARGET = ASSETS / "kakeya-tiny-qwen3"


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    files = read_corpus()[::40]
    return Episodes(read_tokenizer(TARGET), files, word_pool(read_corpus()), held_out=False)


@pytest.mark.parametrize("length", [200, 900])
def test_a_context_has_the_length_that_was_asked_for(episodes: Episodes, length: int) -> None:
    for number in range(4):
        episode = episodes.episode(1, number, length)
        assert abs(len(episode.context) + len(episode.question) - length) <= 2


@pytest.mark.parametrize("length", [1, 10, 40, 10_000_000])
def test_a_length_that_holds_no_codes_or_more_code_than_there_is_is_refused(episodes: Episodes, length: int) -> None:
    message = rf"contexts of {length} tokens, of which codes and question take \d+; expected"
    with pytest.raises(UsageError, match=message):
        episodes.episode(1, 0, length, 4)


def test_contexts_longer_than_the_targets_own_are_refused_before_they_are_made(tmp_path, capsys) -> None:
    words = ["ftheta", "--target", str(TARGET), "--drafter", f"{TARGET}-dflash", "--out", str(tmp_path / "out")]
    assert main([*words, "--length", "4097"]) == 2
    assert "contexts of 4097 tokens; 'kakeya-tiny-qwen3' holds 4096 positions" in capsys.readouterr().err
