"""A drafter's host holds of the target what the drafter borrows, and drafts what it would beside the whole one."""

from __future__ import annotations

import argparse
import gc

import pytest

from engine.bench.remote import RemoteTrial
from engine.decoding.depth import FixedDepth
from engine.errors import UsageError
from engine.loading import own_drafter, resolve_model
from engine.options import add_model_options, open_lent
from tests.integration.distributed.conftest import PAIR, Pair


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_model_options(parser)
    return parser.parse_args(["--target", PAIR, *words])


def test_a_lent_drafter_drafts_the_same_from_a_part_of_the_targets_memory(pair: Pair) -> None:
    gc.collect()
    before = pair.engine.backend.allocator_active_bytes()
    _, lent, lender, folder = open_lent(options())
    gc.collect()
    lent_bytes = pair.engine.backend.allocator_active_bytes() - before
    whole = pair.engine.backend.load_target(folder)
    loaded = pair.engine.backend.allocator_active_bytes() - before - lent_bytes
    own = pair.engine.backend.load_dflash(resolve_model(own_drafter(folder)), whole)
    drafter = pair.engine.backend.allocator_active_bytes() - before - lent_bytes - loaded
    assert lent_bytes - drafter < loaded / 2

    facts = ("hidden_size", "vocab_size", "layer_count", "dtype", "parameters")
    assert [getattr(lender.info, name) for name in facts] == [getattr(whole.info, name) for name in facts]
    trial, depth = RemoteTrial(pair.engine, 24), FixedDepth(3)
    assert lent.info == own.info
    ours, theirs = (trial.decode(pair.prompts[0], model, depth) for model in (lent, pair.engine.drafter))
    assert ours.drafted_as(theirs)


@pytest.mark.parametrize("name", ["ngram", "none", "grpc:127.0.0.1:1"])
def test_a_drafter_that_borrows_nothing_has_no_lender(name: str) -> None:
    with pytest.raises(UsageError, match="borrows nothing of a target"):
        open_lent(options("--drafter", name))
