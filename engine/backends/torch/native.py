"""transformers' own autoregressive decoding: the baseline of every torch measurement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import DynamicCache

from engine.backends.torch.target import TorchTarget
from engine.decoding.prompt import check_prompt, room_tokens
from engine.stopping import Stopping
from engine.types import Step, StopReason


class TorchNative:
    """The model's own ``forward`` on transformers' own cache, one token at a time.

    This is the greedy loop of ``generate`` (same forward, same ``DynamicCache``, argmax, one read per token) without
    its bookkeeping of masks, processors and stopping criteria.
    """

    def __init__(self, target: TorchTarget) -> None:
        self.target = target
        self._cache: Any = None

    @property
    def code_path(self) -> str:
        """The class whose ``forward`` decodes."""
        kind = type(self.target.module)
        return f"{kind.__module__}:{kind.__qualname__}.forward"

    def decode(self, prompt: tuple[int, ...], stopping: Stopping, chunk: int) -> Iterator[Step]:
        """Yield one step per token until ``stopping`` ends it; the first carries the forwards of the prefill.

        Raises:
            PromptError: If the prompt cannot be decoded.
        """
        check_prompt(prompt, self.target.info)
        stopping.room_tokens = room_tokens(len(prompt), self.target.info)
        cache = DynamicCache(config=self.target.module.config)
        chunks = [prompt[start : start + chunk] for start in range(0, len(prompt), chunk)]
        for part in chunks[:-1]:
            self._forward(torch.tensor([part], device=self.target.device), cache)
        ids, forwards = torch.tensor([chunks[-1]], device=self.target.device), len(chunks)
        position, prefill = len(prompt), True
        while True:
            ids = self._forward(ids, cache)
            self._cache = cache  # decodes may take turns
            emitted, stop = stopping.cut((int(ids.item()),))
            if stop is None and stopping.cancelled():
                stop = StopReason.CANCELLED
            yield Step(
                tokens=emitted,
                committed=1,
                position=position,
                target_forwards=forwards,
                host_syncs=1,
                prefill=prefill,
                stop=stop,
            )
            if stop is not None:
                return
            position, forwards, prefill = position + 1, 1, False

    def measured_bytes(self) -> int:
        """Return the bytes of the buffers in transformers' cache."""
        layers = [] if self._cache is None else self._cache.layers
        tensors = [getattr(layer, side, None) for layer in layers for side in ("keys", "values")]
        states = [getattr(layer, side, {}) for layer in layers for side in ("conv_states", "recurrent_states")]
        tensors += [tensor for state in states for tensor in state.values()]
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors if tensor is not None)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """Append ids ``[1, rows]`` and return the most likely next one, ``[1, 1]`` on the device."""
        output = self.target.module(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        best: torch.Tensor = output.logits[:, -1].argmax(dim=-1, keepdim=True)
        return best
