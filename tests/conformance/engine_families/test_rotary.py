"""Positions are scaled on MLX as transformers scales them, whatever a config leaves unsaid, and steps are replayed."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.loading import load_backend
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from tests.conformance.engine_families import stock
from tests.fakes.tiny_families import BASE, CONFIGS, HYBRID, MOE, MROPE, VOCAB, YARN, write_config

IDS = tuple(5 + (index * 7) % (VOCAB - 5) for index in range(100))
FACTORS = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALINGS: dict[str, dict[str, Any]] = {
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "dynamic in its newer place": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
    "llama3 without a length": {"rope_scaling": {"rope_type": "llama3"} | FACTORS},
    "yarn without a length": {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    "yarn with a factor of its own": {"rope_scaling": YARN | {"attention_factor": 1.3}},
    "yarn whose length stands beside it": {
        "rope_scaling": {"type": "yarn", "factor": 4.0},
        "original_max_position_embeddings": 32,
    },
    "a base beside the kind of scaling": {"rope_scaling": YARN | {"rope_theta": 1e6}},
    "a base in both places": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "yarn with experts": MOE | {"model_type": "qwen3_moe", "rope_scaling": YARN},
    "yarn of a mixtral": CONFIGS["mixtral"] | {"model_type": "mixtral", "rope_scaling": YARN},
    "linear with experts": MOE | {"model_type": "qwen3_moe", "rope_scaling": {"type": "linear", "factor": 4.0}},
}
HYBRID_SCALINGS: dict[str, dict[str, Any]] = {
    "dynamic of a hybrid": {"rope_type": "dynamic", "factor": 2.0},
    "yarn of a hybrid without a length": {"rope_type": "yarn", "factor": 4.0},
    "yarn of a hybrid with a factor of its own": YARN | {"attention_factor": 1.3},
}
"""Scalings where mlx-lm reads ``rope_parameters`` itself."""
SCALINGS |= {
    name: HYBRID | {"model_type": "qwen3_5_text", "max_position_embeddings": 128, "rope_parameters": MROPE | scaling}
    for name, scaling in HYBRID_SCALINGS.items()
}


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_is_the_one_of_transformers_in_every_step(tmp_path: Path, name: str) -> None:
    config = BASE | {"model_type": "qwen3", "rope_theta": 1e4, "max_position_embeddings": 128} | SCALINGS[name]
    # transformers fills in what the config that it is given does not say.
    folder = write_config(tmp_path, deepcopy(config))
    (folder / "config.json").write_text(json.dumps(config))
    backend = load_backend("mlx")
    target: Any = backend.load_target(folder)
    torch = load_backend("torch", device="cpu")
    mine, theirs = stock.logits(backend, target, IDS), stock.logits(torch, torch.load_target(folder), IDS)
    assert np.abs(mine - theirs).max() < 1e-4 * np.abs(theirs).max()
    drafter = NgramModel(min_tokens=1)
    sequence = target.open(drafter.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, drafter.open(), backend.greedy(target), FixedDepth(3), backend.clock)
    tokens = [token for step in speculative(parts, IDS[:40], Stopping(40)) for token in step.tokens]
    assert tokens == list(stock.greedy(backend, target, IDS[:40], 40))
