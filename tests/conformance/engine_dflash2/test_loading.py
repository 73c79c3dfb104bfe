"""A DFlash 2 folder loads as published, or is refused with one clear error before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.checkpoint import ASSETS
from engine.errors import EngineError, ModelConfigError, ModelMismatchError, ModelWeightsError
from engine.loading import open_engine
from tests.conformance.engine_dflash2.conftest import Side
from tests.fakes import naive_dflash2

NAME = "kakeya-tiny-qwen3"
PREDECESSORS = "candidate_selector.predecessor_codebook"
Tensors = dict[str, np.ndarray]
CONFIG_FAULTS: dict[str, tuple[dict[str, Any], type[EngineError], str]] = {
    "group size": ({"dflash_config": {"conv_group_size": 36}}, ModelConfigError, "divisor of hidden_size = 192"),
    "more candidates than tokens": ({"dflash_config": {"selector_top_k": 2049}}, ModelConfigError, "vocab_size = 2048"),
    "no rank": ({"dflash_config": {"selector_rank": None}}, ModelConfigError, "selector_rank is None"),
    "vocabulary": ({"vocab_size": 2047}, ModelMismatchError, "vocab_size is 2047"),
    "first generation": ({"architectures": ["DFlashDraftModel"]}, ModelWeightsError, r"unexpected \['candidate_sel"),
    "taps": ({"dflash_config": {"conv_kernel_size": 3}}, ModelWeightsError, r"base_kernel has shape \(2, 2, 192\)"),
}
TENSOR_FAULTS: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "missing codebook": (lambda tensors: tensors.pop(PREDECESSORS), "missing.*predecessor_codebook"),
    "short codebook": (lambda tensors: tensors.update({PREDECESSORS: tensors[PREDECESSORS][:9]}), r"shape \(9, 24\)"),
    "NaN in a codebook": (lambda tensors: tensors[PREDECESSORS].fill(np.nan), "NaN or infinite"),
    "missing kernel": (lambda tensors: tensors.pop("layers.2.mlp_conv.base_kernel"), "missing.*base_kernel"),
}


def written(folder: Path, **changes: Any) -> Path:
    config = naive_dflash2.config_of(192, 2048)
    tensors = naive_dflash2.random_tensors(config)
    return naive_dflash2.write(folder, naive_dflash2.config_of(192, 2048, **changes), tensors)


@pytest.mark.parametrize("fault", CONFIG_FAULTS)
def test_a_config_that_does_not_fit_is_refused(side: Side, tmp_path: Path, fault: str) -> None:
    changes, error, message = CONFIG_FAULTS[fault]
    with pytest.raises(error, match=message):
        side.backend.load_dflash(written(tmp_path, **changes), side.targets[NAME])


@pytest.mark.parametrize("fault", TENSOR_FAULTS)
def test_a_folder_with_a_bad_tensor_is_refused(side: Side, tmp_path: Path, fault: str) -> None:
    spoil, message = TENSOR_FAULTS[fault]
    config = naive_dflash2.config_of(192, 2048)
    tensors = naive_dflash2.random_tensors(config)
    spoil(tensors)
    with pytest.raises(ModelWeightsError, match=message):
        side.backend.load_dflash(naive_dflash2.write(tmp_path, config, tensors), side.targets[NAME])


def test_a_published_folder_opens_by_name_beside_its_target(side: Side, tmp_path: Path) -> None:
    written(tmp_path / "second")
    engine = open_engine(side.backend, str(ASSETS / NAME), "second", roots=str(tmp_path))
    info = engine.drafter.info
    # 3 layers of 15 tensors, 3 of the frame, 3 of the selector; sizes as in naive_dflash2.SHAPE and NESTED.
    layer = 2 * 192 * (64 + 32) + 3 * 192 * 80 + 2 * 192 + 2 * 16 + 2 * (4 * 192 + 4 * 12 * 192)
    assert info.parameters == 3 * layer + 2 * 192 * 192 + 2 * 192 + 24 * 192 + 2 * 2048 * 24
    assert (info.format, info.block_size) == ("dflash-v2", 8)
    assert info.settings["selector_rank"] == 24
