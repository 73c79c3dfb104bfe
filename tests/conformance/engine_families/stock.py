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
    """The library's recurrent states behind a prompt and, one by one, the tokens after it."""

    def __init__(self, backend: Any, target: Any, prompt: tuple[int, ...]) -> None:
        self._torch = backend.name == "torch"
        self._target = target
        self._layers = target.family.structure.recurrent
        self._cache = self._empty()
        self._forward(prompt)

    def after(self, tokens: tuple[int, ...]) -> list[list[np.ndarray]]:
        """Return tail and matrix of each recurrent layer behind these further tokens."""
        for token in tokens:
            self._forward((token,))
        caches = [self._cache.layers[index] if self._torch else self._cache[index] for index in self._layers]
        if self._torch:
            # transformers keeps one column that no later row reads.
            return [[layer.conv_states[0][..., 1:].numpy(), layer.recurrent_states[0].numpy()] for layer in caches]
        return [[np.asarray(layer[side].tolist()) for side in (0, 1)] for layer in caches]

    def _empty(self) -> Any:
        if self._torch:
            from transformers import DynamicCache

            return DynamicCache(config=self._target.module.config)
        from mlx_lm.models.cache import make_prompt_cache

        return make_prompt_cache(self._target.module)

    def _forward(self, ids: tuple[int, ...]) -> None:
        if self._torch:
            import torch

            with torch.inference_mode():
                self._target.module(torch.tensor([ids]), past_key_values=self._cache, use_cache=True)
        else:
            import mlx.core as mx

            mx.eval(self._target.module(mx.array([ids]), cache=self._cache))


def held_states(sequence: Any) -> list[list[np.ndarray]]:
    """Return the engine's states of a sequence in the same form."""
    caches = getattr(sequence.caches, "layers", sequence.caches)
    recurrent = [cache for cache in caches if isinstance(cache, RecurrentState)]
    return [[np.asarray(array.tolist()) for array in cache.state or ()] for cache in recurrent]
