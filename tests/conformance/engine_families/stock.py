"""The libraries' own answers: logits, greedy tokens and recurrent states of a sequence, on their own caches."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.recurrent import RecurrentState
from engine.stopping import Stopping


def logits(backend: Any, target: Any, ids: tuple[int, ...]) -> np.ndarray:
    """Return what the library's model makes of a sequence in one forward without a cache, ``[len(ids), V]``."""
    if backend.name == "torch":
        import torch

        with torch.inference_mode():
            return np.asarray(target.module(torch.tensor([ids])).logits[0].float().tolist())
    import mlx.core as mx

    return np.asarray(target.module(mx.array([ids]), cache=None)[0].tolist())


def greedy(backend: Any, target: Any, prompt: tuple[int, ...], budget: int) -> tuple[int, ...]:
    """Return ``generate``'s tokens on torch and ``generate_step``'s on MLX."""
    if backend.name == "torch":
        import torch

        answer = target.module.generate(
            torch.tensor([prompt]), max_new_tokens=budget, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        return tuple(answer[0, len(prompt) :].tolist())
    steps = backend.native(target).decode(prompt, Stopping(budget), 512)
    return tuple(token for step in steps for token in step.tokens)


class States:
    """The library's recurrent states, row by row: what each position leaves behind."""

    def __init__(self, backend: Any, target: Any) -> None:
        self._torch = backend.name == "torch"
        self._target = target
        self._layers = target.family.structure.recurrent

    def after(self, ids: tuple[int, ...], prompt: int) -> list[list[np.ndarray]]:
        """Return tail and matrix of each recurrent layer after ``ids``, decoded one by one behind a prompt."""
        parts = [ids[:prompt], *((token,) for token in ids[prompt:])]
        return self._torch_states(parts) if self._torch else self._mlx_states(parts)

    def _torch_states(self, parts: list[tuple[int, ...]]) -> list[list[np.ndarray]]:
        import torch
        from transformers import DynamicCache

        cache = DynamicCache(config=self._target.module.config)
        with torch.inference_mode():
            for part in parts:
                self._target.module(torch.tensor([part]), past_key_values=cache, use_cache=True)
        held = [cache.layers[index] for index in self._layers]
        # transformers keeps one column that no later row reads.
        return [[layer.conv_states[0][..., 1:].numpy(), layer.recurrent_states[0].numpy()] for layer in held]

    def _mlx_states(self, parts: list[tuple[int, ...]]) -> list[list[np.ndarray]]:
        import mlx.core as mx
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(self._target.module)
        for part in parts:
            mx.eval(self._target.module(mx.array([part]), cache=cache))
        return [[np.asarray(cache[index][side].tolist()) for side in (0, 1)] for index in self._layers]


def held_states(sequence: Any) -> list[list[np.ndarray]]:
    """Return the engine's states of a sequence in the same form."""
    caches = getattr(sequence.caches, "layers", sequence.caches)
    held = [cache for cache in caches if isinstance(cache, RecurrentState)]
    return [[np.asarray(array.tolist()) for array in cache.state or ()] for cache in held]
