from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.huggingface import open_causal, placed
from tests.fakes import tiny_torch


def test_a_cpu_is_where_weights_are_read_to_anyway() -> None:
    assert placed("cpu") == placed(torch.device("cpu")) == {}


def test_weights_go_straight_to_a_device_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers places tensors with it")
    folder = tiny_torch.write_target(tmp_path, "qwen3")
    # A CPU with a number is no accelerator, but goes the same way.
    device = torch.device("cpu", 0)
    assert placed(device) == {"device_map": {"": device}}
    module = open_causal(folder, "float32", device)
    assert not [name for name in vars(module) if "hook" in name and name.startswith("_hf")]
    ids = torch.arange(5, 25)[None]
    assert torch.equal(module(ids).logits, open_causal(folder)(ids).logits)
