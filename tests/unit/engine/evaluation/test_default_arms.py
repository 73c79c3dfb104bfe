"""What `eval bounded-recall` measures by default can be measured: its arms fit the target that they are measured on."""

from __future__ import annotations

import argparse

import pytest

from engine.checkpoint import read_config, resolve_model
from engine.measurement.bounded_answers import Candidate
from engine.restoration.choice import chosen_restoration
from engine.restoration.restorers import full_layers
from engine.structure.decoder import read_structure
from engine.structure.layout import CacheLayout
from engine.studies import bounded_recall


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bounded_recall.options(parser)
    return parser.parse_args(list(words))


def test_the_default_arms_are_measured_on_the_target_whose_layers_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAKEYA_TARGET", raising=False)
    named = bounded_recall.asked_target(parsed())
    assert named is not None
    target = resolve_model(named)
    full = set(full_layers(read_structure(read_config(target))))
    for text in bounded_recall.DEFAULT_ARMS.split(","):
        layout = CacheLayout.parse(Candidate.parse(text, drafts=False).layout)
        assert set(layout.exact) <= full
        if layout.rank and not text.endswith("+identity"):
            assert chosen_restoration(None, str(layout), target) is not None


def test_a_target_that_is_named_is_the_one_and_other_arms_are_on_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAKEYA_TARGET", raising=False)
    assert bounded_recall.asked_target(parsed("--target", "mine")) == "mine"
    assert bounded_recall.asked_target(parsed("--arms", "sink4+window64")) is None
    monkeypatch.setenv("KAKEYA_TARGET", "theirs")
    assert bounded_recall.asked_target(parsed()) == "theirs"
