"""Blocks under a mask attend with queries packed by key head, and the stock model beside them does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import DynamicCache

from engine.backends.torch.backend import TorchBackend
from engine.backends.torch.models.attention import PACKED_ROWS, attend_packed
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes import tiny_families, tiny_torch

PROMPT = tuple(range(5, 45))
ATTENTION = torch.nn.functional.scaled_dot_product_attention
KINDS = ("gemma4", "gemma4-shared", "qwen3")
HEADS = 4


class CountedAttention(TorchFunctionMode):
    """Counts attention under a mask: of several tokens packed by key head, and over repeated keys.

    A single token is packed by transformers itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.packed = self.repeated = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the call where it is one, and run it."""
        if function is ATTENTION and (kwargs or {}).get("attn_mask") is not None:
            heads, rows = args[1].shape[1], args[0].shape[2]
            self.repeated += heads == HEADS
            self.packed += heads < HEADS and rows > HEADS // heads
        return function(*args, **(kwargs or {}))


@pytest.fixture(scope="module", params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a target in float64, in which two ways of adding up differ by nothing that a bound has to allow."""
    folder = tiny_torch.write_target(tmp_path_factory.mktemp("target"), request.param)
    target = TorchBackend(device="cpu").load_target(folder)
    target.module.double()
    return target


def verify(target: Any, rows: int) -> tuple[torch.Tensor, CountedAttention]:
    """Return the logits of a block behind the prompt, and how its layers attended."""
    sequence, counted = target.open((), CacheLayout.NATIVE), CountedAttention()
    list(sequence.prefill(PROMPT, 512))
    drafted = tuple(7 + index % 40 for index in range(rows - 1))
    with counted:
        logits = sequence.forward_block(9, Draft(drafted, len(drafted))).logits
    return logits, counted


def stock_logits(target: Any, rows: int) -> torch.Tensor:
    """Return what transformers' own forward says of the same block behind the same prompt."""
    ids = (*PROMPT, 9, *(7 + index % 40 for index in range(rows - 1)))
    with torch.inference_mode():
        return target.module(input_ids=torch.tensor([ids])).logits[0, len(PROMPT) :]


@pytest.mark.parametrize("rows", [2, 8, PACKED_ROWS])
def test_a_packed_block_says_what_the_stock_forward_says_across_windows(target: Any, rows: int) -> None:
    logits, counted = verify(target, rows)
    stock = stock_logits(target, rows)
    assert logits.dtype == torch.float64
    assert (logits - stock).abs().max() <= 1e-13 * stock.abs().max()
    assert torch.equal(logits.argmax(dim=-1), stock.argmax(dim=-1))
    assert counted.packed == target.info.layer_count
    assert counted.repeated == 0


def test_a_longer_block_repeats_keys_as_stock_does(target: Any) -> None:
    _, counted = verify(target, PACKED_ROWS + 1)
    assert (counted.packed, counted.repeated) == (0, target.info.layer_count)


def test_the_stock_model_of_the_same_weights_packs_no_block(target: Any) -> None:
    verify(target, 8)
    cache, counted = DynamicCache(config=target.module.config), CountedAttention()
    with torch.inference_mode(), counted:
        target.module(input_ids=torch.tensor([PROMPT]), past_key_values=cache, use_cache=True)
        target.module(input_ids=torch.tensor([PROMPT[:8]]), past_key_values=cache, use_cache=True)
        list(TorchBackend(device="cpu").native(target).decode(PROMPT, Stopping(4), 10))
    assert counted.packed == 0
    assert counted.repeated >= target.info.layer_count


def test_a_model_that_computes_its_own_scores_says_that_it_repeats_keys(tmp_path: Path) -> None:
    target = TorchBackend(device="cpu").load_target(tiny_families.write_family(tmp_path, "gpt_oss"))
    sequence = target.open((), CacheLayout.NATIVE)
    list(sequence.prefill(PROMPT, 512))
    sequence.forward_block(9, Draft())
    assert sequence.fallbacks() == {}
    sequence.forward_block(9, Draft((7, 8), 2))
    assert sequence.fallbacks() == {"attention with sinks repeats keys and values for every query head": 1}


def test_a_mask_of_each_head_is_packed_with_its_queries() -> None:
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn((1, HEADS, 3, 8), generator=generator)
    keys, values = (torch.randn((1, 2, 5, 8), generator=generator) for _ in range(2))
    mask = torch.rand((1, HEADS, 3, 5), generator=generator) < 0.6
    mask[..., 0] = True
    attended, _ = attend_packed(None, queries, keys, values, mask)
    repeated = [side.repeat_interleave(2, dim=1) for side in (keys, values)]
    expected = ATTENTION(queries, *repeated, attn_mask=mask).transpose(1, 2)
    torch.testing.assert_close(attended, expected)
