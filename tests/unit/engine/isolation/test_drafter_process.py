"""What a drafter's server is started with: every option that says which drafter is loaded here."""

from __future__ import annotations

import argparse

import pytest

from engine.isolation.drafter_process import served_words, serves_lookup
from engine.options import add_model_options


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_model_options(parser)
    return parser.parse_args(words)


def test_a_server_loads_the_drafter_that_is_loaded_here() -> None:
    words = ["--backend", "torch", "--device", "cpu", "--dtype", "float32"]
    words += ["--target", "./here", "--drafter", "./small", "--drafter-context", "64"]
    assert served_words(options(*words)) == words


def test_what_nobody_said_is_left_to_the_server() -> None:
    assert served_words(options()) == ["--backend", "mlx"]


def test_a_server_offers_prompt_lookup_where_the_option_or_else_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KAKEYA_DRAFTER", raising=False)
    assert serves_lookup(options("--drafter", "ngram"))
    assert not serves_lookup(options())
    monkeypatch.setenv("KAKEYA_DRAFTER", "ngram")
    assert serves_lookup(options())
    assert not serves_lookup(options("--drafter", "./small"))
