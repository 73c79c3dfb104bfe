"""What a config leaves out means on MLX what it means to transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.loading import load_backend
from tests.conformance.engine_families import stock
from tests.conformance.engine_families.test_against_stock import prompt_of
from tests.fakes.tiny_families import CONFIGS, write_config
from tests.fakes.tiny_torch import GEMMA

LEFT_OUT = [
    ("llama", "rms_norm_eps"),
    ("qwen2", "rope_theta"),
    ("qwen3", "rope_parameters"),
    ("qwen3", "head_dim"),
    ("qwen3", "max_position_embeddings"),
    ("qwen3_moe", "head_dim"),
    ("qwen3_moe", "norm_topk_prob"),
    ("gemma4_text", "num_kv_shared_layers"),
    ("gemma4_text", "final_logit_softcapping"),
    ("gemma4_text", "layer_types"),
    ("gemma4_unified_text", "hidden_size_per_layer_input"),
    ("gpt_oss", "sliding_window"),
    ("gpt_oss", "num_experts_per_tok"),
    ("qwen3_next", "norm_topk_prob"),
    ("qwen3_next", "partial_rotary_factor"),
    ("qwen3_5_text", "rope_parameters"),
    ("qwen3_5_moe_text", "shared_expert_intermediate_size"),
]


@pytest.mark.parametrize(("kind", "name"), LEFT_OUT)
def test_an_entry_that_is_left_out_is_read_as_transformers_reads_it(tmp_path: Path, kind: str, name: str) -> None:
    whole = CONFIGS.get(kind, GEMMA)
    config = {key: value for key, value in whole.items() if key != name} | {"model_type": kind}
    folder, ids = write_config(tmp_path, config), prompt_of(30, seed=8)
    torch, mlx = (load_backend(other, device="cpu" if other == "torch" else None) for other in ("torch", "mlx"))
    theirs = stock.logits(torch, torch.load_target(folder), ids)
    assert np.abs(stock.logits(mlx, mlx.load_target(folder), ids) - theirs).max() < 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize(("outer", "inner"), [(True, None), (False, True), (True, False)])
def test_a_wrapper_has_the_last_word_on_its_head(tmp_path: Path, outer: bool, inner: bool | None) -> None:
    text = CONFIGS["qwen3_5_text"] | {"model_type": "qwen3_5_text", "tie_word_embeddings": outer}
    folder, ids = write_config(tmp_path, text), prompt_of(30, seed=8)
    nested = {name: value for name, value in (text | {"tie_word_embeddings": inner}).items() if value is not None}
    wrapper = {"model_type": "qwen3_5", "tie_word_embeddings": outer, "text_config": nested}
    torch, mlx = (load_backend(other, device="cpu" if other == "torch" else None) for other in ("torch", "mlx"))
    theirs = stock.logits(torch, torch.load_target(folder), ids)
    (folder / "config.json").write_text(json.dumps(wrapper))
    for backend in (torch, mlx):
        got = stock.logits(backend, backend.load_target(folder), ids)
        assert np.abs(got - theirs).max() < 1e-4 * np.abs(theirs).max()
