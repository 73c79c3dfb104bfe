"""Opening targets and drafters with torch for the evaluation behind the model cards, in fp32 on the CPU."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.drafters import dflash
from engine.errors import ModelConfigError
from engine.huggingface import open_causal
from engine.tokenizer import read_tokenizer


@dataclass(frozen=True)
class EvaluatedTarget:
    """A target in transformers, its tokenizer and its folder's name."""

    name: str
    model: Any
    tokenizer: Any

    def encode(self, text: str) -> list[int]:
        """Return token ids of `text` with `<bos>` first."""
        return list(self.tokenizer.encode(text).ids)


def load_target(folder: Path) -> EvaluatedTarget:
    """Load a target folder in fp32.

    Raises:
        ModelError: If it is missing or unusable.
    """
    return EvaluatedTarget(folder.name, open_causal(folder), read_tokenizer(folder))


def load_drafter(folder: Path) -> Any:
    """Load a DFlash v1 drafter folder in fp32.

    Raises:
        ModelConfigError: When it is of DFlash 2, which is not trained here.
        RuntimeError: When tensors are missing, unexpected or misshapen.
    """
    from safetensors.torch import load_file

    from engine.training.drafter_model import DFlashDrafter

    config = json.loads((folder / "config.json").read_text())
    if dflash.parse(config).second is not None:
        raise ModelConfigError(
            f"{folder} holds a DFlash 2 drafter; model cards are made for the v1 drafters trained here. "
            "Measure it with `kakeya-engine eval acceptance`."
        )
    drafter = DFlashDrafter(config)
    drafter.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    return drafter.eval().requires_grad_(False)
