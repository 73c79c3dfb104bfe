"""Recording a forward: it runs once under a recorder and is repeated without running its Python again.

On a card a recording is a CUDA graph. What it reads and writes stays at its addresses for its whole life.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WARM_UPS = 2
"""Runs before a capture: libraries choose kernels and allocate workspaces in the first ones."""
OLDEST_TORCH = (2, 12)
"""Older ones let the allocator believe, after a capture that CUDA refused, that it goes on (pytorch change 180395)."""

HOST_OPERATORS = frozenset(
    {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique_dim", "_unique2", "equal", "lift_fresh"}
)
"""Operators whose value or shape the host must know, or that copy from its memory."""

Outputs = tuple[torch.Tensor, ...]
Run = Callable[[], Outputs]


def too_old(found: str) -> str | None:
    """Return why this torch records nothing, None when it does."""
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    floor = ".".join(map(str, OLDEST_TORCH))
    return None if numbers >= OLDEST_TORCH else f"torch {found} is installed; recorded forwards need {floor} or later"


class NotRecordableError(Exception):
    """A forward needs the host in its middle, or the recorder ran out of something; the message is the reason."""


class Recorder(Protocol):
    """Turns a call on fixed tensors into one that can be repeated without running its Python again."""

    def record(self, run: Run) -> Run:
        """Return a repeatable ``run``; it is run once or more, and its outputs are overwritten by later repeats.

        Raises:
            NotRecordableError: If it cannot be repeated without the host.
        """


class NoHost(TorchDispatchMode):
    """Refuses operators that need the host while it is active: before a capture, which a refusal would break."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func`` unless it needs the host.

        Raises:
            NotRecordableError: If it does.
        """
        name = func.overloadpacket.__name__
        if name in HOST_OPERATORS:
            raise NotRecordableError(f"{name} needs the host")
        return func(*args, **(kwargs or {}))


class CudaGraphs:
    """CUDA graphs that share one private memory pool: they are replayed on one stream, never two at a time."""

    _capturing = threading.Lock()
    """Only one capture may be under way in a process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, run: Run) -> Run:
        """Warm ``run`` up beside the current stream and capture it.

        Raises:
            NotRecordableError: If the host is needed in it, or CUDA refuses the capture.
        """
        try:
            with self._capturing, torch.cuda.device(self._device):
                graph, outputs = self._captured(run)
        except RuntimeError as error:
            raise NotRecordableError(str(error).strip().splitlines()[0][:300]) from error

        def replay() -> Outputs:
            graph.replay()
            return outputs

        return replay

    def _captured(self, run: Run) -> tuple[torch.cuda.CUDAGraph, Outputs]:
        current, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            with NoHost():
                run()
            for _ in range(WARM_UPS):
                run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Not ``torch.cuda.graph``: it leaves its own stream current when a capture fails. Other threads may go on
        # using the card, hence the mode.
        with torch.cuda.stream(beside):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                outputs = run()
            except RuntimeError as error:
                try:
                    graph.capture_end()
                except RuntimeError as second:
                    raise error from second
                raise
            graph.capture_end()
        current.wait_stream(beside)
        return graph, outputs
