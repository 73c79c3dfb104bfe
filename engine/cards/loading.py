"""Opening targets and drafters with torch for the evaluation behind the model cards, in fp32 on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.checkpoint import read_config, stop_ids
from engine.drafters import dflash
from engine.errors import ModelConfigError
from engine.huggingface import open_causal
from engine.tokenizer import read_tokenizer
from engine.training.requests import SHIPPED, Ends
from engine.training.tokenizer import MASK_ID, SPECIAL_TOKENS


@dataclass(frozen=True)
class EvaluatedTarget:
    """A target in transformers, its tokenizer, its folder's name, and the ids that end its answers."""

    name: str
    model: Any
    tokenizer: Any
    ends: Ends = SHIPPED

    @property
    def speaks_shipped_words(self) -> bool:
        """Whether its tokenizer is the one that the packaged prompt sets are written for."""
        return bool(self.tokenizer.token_to_id(SPECIAL_TOKENS[MASK_ID]) == MASK_ID)

    def encode(self, text: str) -> list[int]:
        """Return token ids of `text` with what the tokenizer puts first, `<bos>` for the shipped one."""
        return list(self.tokenizer.encode(text).ids)


def load_target(folder: Path) -> EvaluatedTarget:
    """Load a target folder in fp32.

    Raises:
        ModelError: If it is missing or unusable.
    """
    target = EvaluatedTarget(folder.name, open_causal(folder), read_tokenizer(folder))
    stops = stop_ids(folder, read_config(folder))
    return target if target.speaks_shipped_words or not stops else replace(target, ends=Ends(stops[0], stops))


def load_drafter(folder: Path) -> Any:
    """Load a DFlash v1 drafter folder in fp32.

    Raises:
        ModelConfigError: When it is of DFlash 2, which is not trained here.
        ModelWeightsError: When tensors are missing, unexpected, misshapen or not finite.
    """
    from engine.backends.torch.dflash.stored import read_drafter_tensors
    from engine.training.network.drafter_model import DFlashNetwork

    config = read_config(folder)
    parsed = dflash.parse(config)
    if parsed.second is not None:
        raise ModelConfigError(
            f"{folder} holds a DFlash 2 drafter; model cards are made for the v1 drafters trained here. "
            "Measure it with `kakeya-engine eval acceptance`."
        )
    drafter = DFlashNetwork(config)
    drafter.load_state_dict(read_drafter_tensors(folder, parsed), strict=True)
    return drafter.eval().requires_grad_(False)
