"""The drafter in this process and the same drafter over loopback: drafts and output, byte for byte."""

from __future__ import annotations

import pytest

from engine.decoding.depth import FixedDepth
from tests.integration.distributed.conftest import Pair, tokens_of

SHORT, LONG = 48, 24
SHORT_PROMPT, LONG_PROMPT = "a short prompt", "a prompt past its window"


def drafts(steps):
    return [(step.position, step.drafted, step.accepted) for step in steps]


@pytest.mark.parametrize(
    ("depth", "length"),
    [(3, SHORT_PROMPT), (7, LONG_PROMPT)]
    + [pytest.param(*rest, marks=pytest.mark.slow) for rest in ((3, LONG_PROMPT), (7, SHORT_PROMPT))],
)
def test_a_remote_drafter_drafts_what_the_same_one_drafts_here(pair: Pair, depth: int, length: str) -> None:
    shortest, longest = pair.prompts[0], pair.prompts[-1] * (1100 // len(pair.prompts[-1]) + 1)
    prompt, tokens = (shortest, SHORT) if length == SHORT_PROMPT else (longest[:1100], LONG)
    local = pair.steps(pair.engine.drafter.open(), FixedDepth(depth, waits=True), prompt, tokens)
    remote = pair.steps(pair.remote().open(), FixedDepth(depth, waits=True), prompt, tokens)
    assert drafts(remote) == drafts(local)
    assert tokens_of(remote) == tokens_of(local) == pair.plain(prompt, tokens)
    assert any(step.drafted for step in remote)
    assert any(step.accepted for step in remote) or length == LONG_PROMPT


def test_rows_in_half_the_bits_change_drafts_at_most(pair: Pair) -> None:
    prompt = pair.prompts[0]
    drafter = pair.remote(rows="bfloat16").open()
    wide = pair.remote().open()
    halved = pair.steps(drafter, FixedDepth(3, waits=True), prompt, SHORT)
    pair.steps(wide, FixedDepth(3, waits=True), prompt, SHORT)
    assert tokens_of(halved) == pair.plain(prompt, SHORT)
    assert any(step.accepted for step in halved)
    assert drafter.traffic.sent["rows"] < 0.6 * wide.traffic.sent["rows"]
