"""A recorder without a card: it keeps the operators of one run and repeats exactly those, on the same tensors.

What a CUDA graph bakes in is baked in here too: host numbers, shapes, and the address of everything read or written.
Outputs of every operator are written back to where they were recorded. An operator that needs the host is refused, as
CUDA refuses it in a capture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from engine.backends.torch.graphs.recording import NoHost, Outputs, Run

Address = tuple[int, tuple[int, ...], tuple[int, ...]]


def address(tensor: torch.Tensor) -> Address:
    """Return where a tensor is and how it lies there."""
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class _Op:
    """One operator with everything it was called on."""

    def __init__(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.out = _tensors(out)
        self.touched = [(tensor, address(tensor)) for tensor in _tensors((args, kwargs)) + self.out]
        sources = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
        self.writes = bool(func._schema.is_mutable)
        self.is_view = not self.writes and all(t.untyped_storage().data_ptr() in sources for t in self.out)

    def repeat(self) -> None:
        for tensor, where in self.touched:
            assert address(tensor) == where, f"{self.func} was recorded on {where}, which is now {address(tensor)}"
        if self.is_view:
            return
        again = _tensors(self.func(*self.args, **self.kwargs))
        if not self.writes:
            for recorded, fresh in zip(self.out, again, strict=True):
                assert recorded.shape == fresh.shape
                recorded.copy_(fresh)


class _Listening(NoHost):
    def __init__(self, ops: list[_Op]) -> None:
        super().__init__()
        self._ops = ops

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self._ops.append(_Op(func, args, kwargs or {}, out))
        return out


class Tape:
    """Implements ``engine.backends.torch.graphs.recording.Recorder``."""

    def __init__(self) -> None:
        self.recordings = self.replays = 0

    def record(self, run: Run) -> Callable[[], Outputs]:
        self.recordings += 1
        ops: list[_Op] = []
        with _Listening(ops):
            outputs = run()
        where = [address(output) for output in outputs]

        @torch.inference_mode()
        def replay() -> Outputs:
            self.replays += 1
            for op in ops:
                op.repeat()
            assert [address(output) for output in outputs] == where
            return outputs

        return replay
