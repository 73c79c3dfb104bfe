"""torch and MLX compute the same of one folder: features, logits of blocks behind crops, a drafter's hidden states."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes.tiny_torch import CONFIGS, WINDOW

pytest.importorskip("mlx.core", reason="mlx is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")

PROMPT = tuple(5 + (index * 37) % 90 for index in range(WINDOW + 9))


@pytest.fixture(scope="module")
def mlx_backend() -> Any:
    from engine.backends.mlx.backend import MlxBackend

    return MlxBackend()


def numbers(array: Any) -> np.ndarray:
    return np.array(array.tolist())


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_logits_features_and_block_forwards_agree(
    backend: Any, targets: Any, mlx_backend: Any, folders: Path, kind: str
) -> None:
    sides = [targets[kind], mlx_backend.load_target(folders / kind)]
    assert sides[0].info.digest == sides[1].info.digest
    assert sides[0].info.vocab_size == sides[1].info.vocab_size
    outputs = []
    for target in sides:
        sequence = target.open((0, 3), CacheLayout.NATIVE)
        forwards = list(sequence.prefill(PROMPT, 8))
        blocks = []
        for accepted in (0, 4, 7, 2):
            position = sequence.length
            blocks.append(sequence.forward_block(9, Draft(tokens=tuple(range(20, 27)), count=7)))
            sequence.crop(position + 1 + accepted)
        features = np.concatenate([numbers(sequence.committed(forward, forward.rows)) for forward in forwards])
        outputs.append((features, numbers(forwards[-1].logits), np.stack([numbers(block.logits) for block in blocks])))
    for ours, theirs in zip(*outputs, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=3e-4)
    np.testing.assert_array_equal(outputs[0][2].argmax(-1), outputs[1][2].argmax(-1))


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "linear": {"type": "linear", "factor": 4.0},
    "yarn": YARN,
    "yarn with a factor": YARN | {"attention_factor": 1.5},
    "yarn without a length": {"rope_type": "yarn", "factor": 4.0},
    "yarn with bounds that are not rounded": YARN | {"truncate": False, "original_max_position_embeddings": 128},
    "yarn with one of two scales": YARN | {"mscale": 1.5},
    "yarn with both": YARN | {"mscale": 1.5, "mscale_all_dim": 0.5},
    "llama3": LLAMA3 | {"original_max_position_embeddings": 32},
    "llama3 without a length": LLAMA3,
}


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_drafter_hidden_states_agree(
    backend: Any, targets: Any, mlx_backend: Any, folders: Path, tmp_path: Path, scaling: dict[str, Any] | None
) -> None:
    import mlx.core as mx
    import torch

    shutil.copytree(folders / "dflash", tmp_path / "dflash")
    if scaling is not None:
        config = json.loads((tmp_path / "dflash" / "config.json").read_text())
        config |= {"rope_scaling": scaling, "max_position_embeddings": 256}
        (tmp_path / "dflash" / "config.json").write_text(json.dumps(config))
    target = mlx_backend.load_target(folders / "gemma4")
    ours = backend.load_dflash(tmp_path / "dflash", targets["gemma4"]).open()
    theirs = mlx_backend.load_dflash(tmp_path / "dflash", target).open()
    features = np.random.default_rng(0).normal(size=(40, 96)).astype(np.float32)
    for start, end in ((0, 17), (17, 18), (18, 40)):
        part = features[start:end]
        ours.observe(start, (0,) * len(part), torch.from_numpy(part.copy()))
        theirs.observe(start, (0,) * len(part), mx.array(part))
        mask = theirs.model.config.mask_token_id
        rows = theirs.model.hidden_rows(mx.array([8] + [mask] * 7), end, theirs.shown())
        np.testing.assert_allclose(numbers(ours.hidden_rows(8, end, 7)), numbers(rows), atol=2e-5)
