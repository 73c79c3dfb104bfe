"""Numbers of the host on their way to a device, without waiting for what the device still has to do.

A tensor made from a list on a card is copied from memory that may move, so that the host waits until everything queued
before it is done: once for the ids of a block, once for those of a draft. From pinned memory the copy is queued like
any kernel; torch keeps that memory until it was read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def send(
    values: Sequence[int] | Sequence[float], device: torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return ``values`` on ``device``, ``[len(values)]``; int64 or float32 unless a dtype is named."""
    host = torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)
