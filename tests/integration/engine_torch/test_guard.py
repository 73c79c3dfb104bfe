"""A target that yields NaN or an impossible id loses the block's tail, never a wrong token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.errors import NonFiniteLogitsError
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft, Forward
from engine.verification.rejection import Sampling
from tests.fakes.scripted_drafter import ScriptedModel
from tests.fakes.tiny_torch import VOCAB

PROMPT = tuple(range(5, 30))
BUDGET = 30


@dataclass
class Poisoned:
    """A sequence with a NaN in one row of every n-th block forward; plain forwards stay sound unless told otherwise."""

    inner: Any
    row: int
    every: int
    plain_too: bool = False
    blocks: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        forward = self.inner.forward_block(bonus, draft)
        self.blocks += 1
        if self.blocks % self.every or (draft.count == 0 and not self.plain_too):
            return forward
        logits = forward.logits.clone()
        logits[min(self.row, logits.shape[0] - 1), 11] = float("nan")
        return replace(forward, logits=logits)


@pytest.mark.parametrize("row", [0, 1, 4, 7])
@pytest.mark.parametrize("every", [1, 3])
def test_a_bad_row_costs_speed_and_no_token(backend: Any, targets: Any, row: int, every: int) -> None:
    target = targets["gemma4"]
    plain = autoregressive(target.open((), CacheLayout.FULL), backend.greedy(target), PROMPT, Stopping(BUDGET))
    answer = tuple(token for step in plain for token in step.tokens)
    right = ScriptedModel(answer, len(PROMPT), VOCAB, lambda step, index: False)
    sequence = Poisoned(target.open((), CacheLayout.NATIVE), row, every)
    parts = Parts(sequence, right.open(), backend.greedy(target), FixedDepth(7), backend.clock)
    steps = list(speculative(parts, PROMPT, Stopping(BUDGET)))
    assert tuple(token for step in steps for token in step.tokens) == answer
    assert any(step.guard == "non-finite logits" for step in steps)
    for step in steps:
        if step.guard is not None:
            assert step.committed == row


def test_a_target_that_is_broken_even_without_a_draft_is_an_error(backend: Any, targets: Any) -> None:
    target = targets["gemma4"]
    settings = Sampling(seed=1)
    sequence = Poisoned(target.open((), CacheLayout.NATIVE), 0, 1, plain_too=True)
    drafter = ScriptedModel((7,) * 60, len(PROMPT), VOCAB, lambda step, index: False).open()
    parts = Parts(sequence, drafter, backend.sampling(target, settings), FixedDepth(3), backend.clock)
    with pytest.raises(NonFiniteLogitsError, match="no usable next token after position 25"):
        list(speculative(parts, PROMPT, Stopping(BUDGET)))


def test_infinite_logits_are_refused_too(backend: Any, targets: Any) -> None:
    logits = torch.zeros(2, VOCAB)
    logits[0, 3] = float("inf")
    outcome = backend.greedy(targets["qwen3"]).decide(Draft(tokens=(3,), count=1), Forward(logits, None, 0, 2))
    assert (outcome.tokens, outcome.guard) == ((), "non-finite logits")
