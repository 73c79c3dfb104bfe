"""What a drafter's host holds of a target on torch: the lent tensors alone, and the drafts of the whole target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.backends.torch.backend import TorchBackend
from engine.errors import ModelWeightsError
from engine.structure.layout import CacheLayout
from tests.fakes import tiny_torch

PROMPT = tuple(5 + (index * 37) % 90 for index in range(21))


def drafts(model: Any, features: torch.Tensor) -> list[list[int]]:
    """Return what a drafter proposes behind a prompt whose rows were the same."""
    drafter = model.open()
    drafter.observe(0, PROMPT, features)
    return [drafter.ask(bonus, len(PROMPT), 7).tokens.tolist() for bonus in (5, 50, 96)]


@pytest.mark.parametrize("kind", ["gemma4", "qwen3", "untied"])
def test_drafts_are_those_beside_the_whole_target(backend: TorchBackend, tmp_path: Path, kind: str) -> None:
    if kind == "untied":
        folder = tiny_torch.write_target(tmp_path / kind, "qwen3", tie_word_embeddings=False)
    else:
        folder = tiny_torch.write_target(tmp_path / kind, kind)
    drafter_folder = tiny_torch.write_dflash(tmp_path / "drafter")
    whole, lender = backend.load_target(folder), backend.load_lender(folder)
    own, lent = (backend.load_dflash(drafter_folder, target) for target in (whole, lender))
    sequence = whole.open(own.capture, CacheLayout.NATIVE)
    (forward,) = sequence.prefill(PROMPT, 512)
    features = sequence.committed(forward, forward.rows)
    assert drafts(lent, features) == drafts(own, features)

    facts = ("hidden_size", "vocab_size", "layer_count", "dtype", "max_positions", "stop_ids")
    assert [getattr(lender.info, name) for name in facts] == [getattr(whole.info, name) for name in facts]
    assert lent.info == own.info
    assert backend.row_dtype(lender) == backend.row_dtype(whole)
    tensors = 2 if kind == "untied" else 1
    assert lender.measured_bytes() == tensors * 4 * lender.info.vocab_size * lender.info.hidden_size


def test_a_multimodal_wrapper_lends_what_its_text_model_does(backend: TorchBackend, tmp_path: Path) -> None:
    folder = tiny_torch.write_wrapped(tmp_path / "wrapped")
    whole, lender = backend.load_target(folder), backend.load_lender(folder)
    ids = torch.tensor([1, 50, 96])
    rows = whole.family.embed(ids)
    assert torch.equal(lender.family.embed(ids), rows)
    for soft_capped in (True, False):
        assert torch.equal(lender.family.head(rows, soft_capped), whole.family.head(rows, soft_capped))


@pytest.mark.parametrize("fault", ["missing", "two", "misshapen", "not finite"])
def test_lent_tensors_that_cannot_be_used_are_named(backend: TorchBackend, tmp_path: Path, fault: str) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_torch.write_target(tmp_path / "target", "qwen3")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = "model.embed_tokens.weight"
    rows = tensors.pop(name)
    if fault == "two":
        tensors |= {name: rows, f"other.{name}": rows.clone()}
    elif fault == "misshapen":
        tensors[name] = rows[:, :-1].contiguous()
    elif fault == "not finite":
        tensors[name] = torch.full_like(rows, float("nan"))
    save_file(tensors, file, metadata={"format": "pt"})
    messages = {
        "missing": r"lacks the tensors \['embed_tokens'\]",
        "two": "has 2 tensors",
        "misshapen": "expected one row of 32 numbers",
    }
    with pytest.raises(ModelWeightsError, match=messages.get(fault, "holds NaN")):
        backend.load_lender(folder)
