"""The chain from cards to verified drafts, by command."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="nodes exchange over gRPC")
pytest.importorskip("mlx.core", reason="the packaged target is decoded with MLX")

from engine.cli.distributed import commands
from engine.distributed.gossip.choice import drafters_of
from engine.distributed.kakeya.v1 import capability_pb2 as pb
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.node import GossipNode
from engine.loading import resolve_model
from engine.options import offered_drafter

ROWS = (
    "round trip, median / most",
    "local tokens/s",
    "distributed, 3 a draft",
    "distributed, auto",
    "the target's keys",
)


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["--cache", "native"], "kakeya-tiny-gemma4-dflash"),
        (["--drafter", "ngram", "--cache", "sink4+window64"], "ngram"),
    ],
)
def test_two_nodes_exchange_cards_and_the_other_drafts_what_is_verified_here(
    words: list[str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["demo", "--max-new", "24", *words]) == 0
    output = capsys.readouterr().out
    assert "cards: drafter, target; drafter offers " + model in output
    assert "placement: colocated=False; drafter: " in output
    assert all(f"\n{name}" in output for name in ROWS)
    assert "acceptance 0." in output
    assert "output: identical to local decoding, 24 tokens" in output


@pytest.mark.ci
def test_prompt_lookup_that_the_environment_names_drafts_in_a_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAKEYA_DRAFTER", "ngram")
    assert commands.main(["demo", "--max-new", "24"]) == 0
    assert "drafter offers ngram" in capsys.readouterr().out


def card(name: str, tokenizer: str, address: str = "127.0.0.1:1") -> pb.Card:
    return pb.Card(
        node=name, generation=1, endpoints={"drafter": address}, models=[{"name": name, "tokenizer": tokenizer}]
    )


def test_cards_say_who_may_draft_and_who_is_here() -> None:
    cards = [card("any", ""), card("other", "b"), card("far", "a"), card("here", "a"), pb.Card(node="no drafter")]
    choices = drafters_of(cards, "here", "a")
    assert [choice.node for choice in choices] == ["far", "here", "other", "any"]
    assert [choice.colocated for choice in choices] == [False, True, False, False]
    assert [bool(choice.misfit) for choice in choices] == [False, False, True, False]


def test_a_node_whose_card_fits_is_asked_by_default_and_any_other_is_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = resolve_model("kakeya-tiny-gemma4")
    from engine.distributed.compatibility import tokenizer_digest

    def offered(node: str, drafter: str | None = None) -> str | None:
        return offered_drafter(argparse.Namespace(node=node, drafter=drafter), target, several=True)

    with serving(GossipNode(card("far", tokenizer_digest(target), "127.0.0.1:50051"))) as address:
        assert offered(address) == "grpc:127.0.0.1:50051,ngram"
        assert offered(address, "none") is None
    with serving(GossipNode(card("far", "b"))) as address:
        assert offered(address) is None
        assert "far: its drafts are of another tokenizer, b" in capsys.readouterr().err
    assert offered(f"unix:{Path('/tmp/kakeya-no-node')}") is None
    assert "drafting here" in capsys.readouterr().err
