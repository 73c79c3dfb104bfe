"""What a step waits for, counted: a device is read once a step, and no vocabulary is sorted in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from engine.backends.torch.sampling import shape
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.several import SeveralModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Choice
from engine.verification.rejection import Sampling
from tests.fakes.counted_waits import CountedWaits
from tests.support.decoding import prompt_of

SETTINGS = Sampling(temperature=1.2, top_k=20, top_p=0.9, seed=3)
ARMS = {
    "dflash": ("dflash", 7, None),
    "lookups": ("ngram", 7, None),
    "plain": ("ngram", 0, None),
    "drawn dflash": ("dflash", 4, SETTINGS),
    "drawn plain": ("ngram", 0, SETTINGS),
}


@pytest.mark.parametrize("arm", ARMS)
def test_each_step_waits_once_and_says_so(backend: Any, targets: Any, folders: Any, arm: str) -> None:
    kind, depth, settings = ARMS[arm]
    target = targets["qwen3"]
    model: Any = NgramModel() if kind == "ngram" else backend.load_dflash(folders / "dflash", target)
    if settings is not None and kind == "dflash":
        model = model.sampling(settings)
    accept = backend.greedy(target) if settings is None else backend.sampling(target, settings)
    parts = Parts(
        target.open(model.capture, CacheLayout.NATIVE), model.open(), accept, FixedDepth(depth), backend.clock
    )
    prompt = prompt_of(30)
    with CountedWaits() as counted:
        steps = list(speculative(parts, prompt, Stopping(24)))
    assert counted.waits == len(steps)
    assert [step.host_syncs for step in steps] == [1] * len(steps)


class Followed(FixedDepth):
    """Has a match follow every whole draft that it agrees with."""

    def choose(self, position: int, limit: int, lookup: Any = None) -> Choice:
        return Choice(min(self.tokens, limit), "dflash", extended=min(12, limit), wait_s=None)


def test_a_draft_that_is_read_to_be_compared_with_a_match_is_another_wait(
    backend: Any, targets: Any, folders: Any
) -> None:
    target = targets["qwen3"]
    model = SeveralModel({"dflash": backend.load_dflash(folders / "dflash", target)}, NgramModel(min_tokens=1))
    sequence = target.open(model.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, model.open(), backend.greedy(target), Followed(7), backend.clock)
    prompt = prompt_of(90)
    with CountedWaits() as counted:
        steps = list(speculative(parts, prompt, Stopping(24)))
    assert max(step.host_syncs for step in steps) == 2
    assert counted.waits == sum(step.host_syncs for step in steps)


class CountedSorts(TorchFunctionMode):
    """Counts numbers sorted in float64."""

    numbers = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what is sorted, and sort it."""
        if function in {torch.Tensor.sort, torch.Tensor.argsort, torch.sort, torch.argsort}:
            self.numbers += args[0].numel() if args[0].dtype is torch.float64 else 0
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("settings", [SETTINGS, Sampling(top_p=0.9), Sampling(top_k=20), Sampling()], ids=str)
def test_no_vocabulary_is_sorted_in_float64(settings: Sampling) -> None:
    with CountedSorts() as counted:
        shape(torch.randn((4, 500), generator=torch.Generator().manual_seed(1)), settings)
    assert counted.numbers == 0
