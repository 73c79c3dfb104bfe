"""The tensors of a DFlash drafter's folder on torch, for the engine, for training and for transformers' own class."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.backends.torch.dflash.affine import values_of
from engine.drafters import dflash
from engine.drafters.dflash import DFlashConfig
from engine.huggingface import check_finite, read_tensors


def read_drafter_tensors(folder: Path, config: DFlashConfig) -> dict[str, torch.Tensor]:
    """Return a drafter's tensors by canonical name, each as stored and those of codes as the values they stand for.

    Raises:
        ModelWeightsError: If tensors are missing, unexpected, misshapen, not finite or of codes that cannot be read.
    """
    tensors = dflash.dense_tensors(config, read_tensors(folder), values_of)
    check_finite(tensors, folder)
    return tensors
