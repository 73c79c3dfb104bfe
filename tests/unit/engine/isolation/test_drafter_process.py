"""What a drafter's server is started with: every option that says which drafter is loaded here."""

from __future__ import annotations

import argparse

from engine.isolation.drafter_process import served_words
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
