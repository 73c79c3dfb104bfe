"""A device of torch that counts how often the host waits for it, in the place of a card.

On a card the host waits where it reads a number, and where it makes a tensor from its own numbers on the device: they
are copied from memory that may move. A copy from pinned memory that is told not to wait is queued like a kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

READING = {
    torch.Tensor.tolist,
    torch.Tensor.item,
    torch.Tensor.cpu,
    torch.Tensor.numpy,
    torch.Tensor.nonzero,
    torch.Tensor.masked_select,
    torch.Tensor.__bool__,
    torch.Tensor.__int__,
    torch.Tensor.__float__,
    torch.Tensor.__index__,
    torch.nonzero,
    torch.masked_select,
}
MAKING = {torch.tensor, torch.as_tensor}


class CountedWaits(TorchFunctionMode):
    """Counts the waits of what runs inside it; every tensor but those made of numbers is taken for the device's."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the call where it waits, and run it."""
        named = kwargs or {}
        making = function in MAKING
        self.waits += function in READING or (making and named.get("device") is not None)
        if function is torch.Tensor.to and hasattr(args[0], "of_the_host"):
            self.waits += not named.get("non_blocking")
        result = function(*args, **named)
        if making and named.get("device") is None:
            result.of_the_host = True
        return result
