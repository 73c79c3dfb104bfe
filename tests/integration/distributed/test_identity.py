"""The drafter in this process and the same drafter over loopback: drafts and output, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.bench.remote import RemoteTrial
from engine.decoding.depth import FixedDepth
from engine.types import Draft
from tests.integration.distributed.conftest import Pair

SHORT, LONG = 48, 24
SHORT_PROMPT, LONG_PROMPT = "a short prompt", "a prompt past its window"


class Altered:
    """The pair's drafter, but for one id of some drafts: the last of each whose step is named."""

    def __init__(self, inner, steps: Sequence[int], vocab_size: int) -> None:
        self._inner, self._steps, self._vocab_size, self._asks = inner, steps, vocab_size, -1

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def open(self):
        return Altered(self._inner.open(), self._steps, self._vocab_size)

    def ask(self, bonus, position, count, wait_s=0.0):
        draft = self._inner.ask(bonus, position, count, wait_s)
        self._asks += 1
        if self._asks not in self._steps:
            return draft
        *others, last = draft.ids()
        return Draft((*others, (last + 1) % self._vocab_size), draft.count)


@pytest.mark.parametrize(
    ("depth", "length"),
    [(3, SHORT_PROMPT), (7, LONG_PROMPT)]
    + [pytest.param(*rest, marks=pytest.mark.slow) for rest in ((3, LONG_PROMPT), (7, SHORT_PROMPT))],
)
def test_a_remote_drafter_drafts_what_the_same_one_drafts_here(pair: Pair, depth: int, length: str) -> None:
    shortest, longest = pair.prompts[0], pair.prompts[-1] * (1100 // len(pair.prompts[-1]) + 1)
    prompt, tokens = (shortest, SHORT) if length == SHORT_PROMPT else (longest[:1100], LONG)
    trial, fixed = RemoteTrial(pair.engine, tokens), FixedDepth(depth)
    local, remote = (trial.decode(prompt, model, fixed) for model in (pair.engine.drafter, pair.remote()))
    assert remote.drafted_as(local)
    assert list(remote.tokens) == list(local.tokens) == pair.plain(prompt, tokens)
    assert remote.drafted_steps
    assert remote.row()["accepted"] or length == LONG_PROMPT


def test_an_id_that_was_rejected_either_way_makes_other_drafts(pair: Pair) -> None:
    trial, fixed = RemoteTrial(pair.engine, SHORT), FixedDepth(7)
    local = trial.decode(pair.prompts[0], pair.engine.drafter, fixed)
    # What comes behind a rejected id is compared with nothing: another one there changes no count.
    idle = [step for step, (_, drafted, accepted) in enumerate(local.drafts) if accepted + 1 < drafted]
    assert idle
    vocab_size = pair.engine.target.info.vocab_size
    other = trial.decode(pair.prompts[0], Altered(pair.engine.drafter, idle[:1], vocab_size), fixed)
    assert (other.tokens, other.drafts) == (local.tokens, local.drafts)
    assert not other.drafted_as(local)


@pytest.mark.parametrize(("rows", "share"), [("bfloat16", 0.6), ("float8_e4m3", 0.35)])
def test_rows_in_fewer_bits_change_drafts_at_most(pair: Pair, rows: str, share: float) -> None:
    prompt = pair.prompts[0]
    drafter = pair.remote(rows=rows).open()
    wide = pair.remote().open()
    shortened = pair.steps(drafter, FixedDepth(3), prompt, SHORT)
    pair.steps(wide, FixedDepth(3), prompt, SHORT)
    assert [token for step in shortened for token in step.tokens] == pair.plain(prompt, SHORT)
    assert any(step.accepted for step in shortened)
    assert drafter.traffic.sent["rows"] < share * wide.traffic.sent["rows"]
