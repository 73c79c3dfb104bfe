"""Recorded forwards: a forward over static caches is recorded once per block length and replayed at every position.

A recorder is the only thing here that knows how: on a card it is a CUDA graph. What a recording reads and writes stays
at its addresses for its whole life, and any replay overwrites the outputs of all others, so whatever leaves is cloned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.backends.torch.static import Held, StaticCaches
from engine.types import CacheLayout

if TYPE_CHECKING:
    from engine.backends.torch.models import Family

WARM_UPS = 2
"""Runs before a capture: libraries choose kernels and allocate workspaces in the first ones."""
OLDEST_TORCH = (2, 12)
"""Older ones let the allocator believe, after a capture that CUDA refused, that it goes on (pytorch change 180395)."""
HEADROOM_ROWS = 512
"""Positions beyond the prompt that a new slot has at least."""
SMALLEST_ROWS = 1024
"""The smallest slot's positions; larger ones double, so that few sizes are recorded."""

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


class Slot(StaticCaches):
    """Static caches with the recordings made on them, lent to one sequence at a time."""

    def __init__(
        self, family: Family, capture: tuple[int, ...], caches: tuple[Sequence[Held], int, int], recorder: Recorder
    ) -> None:
        super().__init__(*caches)
        self.busy = False
        self.recorded = 0
        self._family, self._capture, self._recorder = family, capture, recorder
        self._ids = torch.zeros(self.block_rows, dtype=torch.int64, device=self._steps.device)
        self._replays: dict[int, Run] = {}

    @torch.inference_mode()
    def record(self) -> None:
        """Record every block length that is not recorded yet.

        Raises:
            NotRecordableError: If the model's forward cannot be recorded.
        """
        for rows in range(1, self.block_rows + 1):
            if rows not in self._replays:
                self._replays[rows] = self._recorder.record(partial(self._run, rows))
                self.recorded += 1

    @torch.inference_mode()
    def forward(self, ids_S: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Append ``S`` rows; return logits ``[S, V]`` and captured states ``[S, K * D]``, None without a capture."""
        rows = ids_S.shape[0]
        self.stand_at(rows)
        self._ids[:rows].copy_(ids_S)
        outputs = [output.clone() for output in self._replays[rows]()]
        return outputs[0], outputs[1] if self._capture else None

    def release(self) -> None:
        """Let another sequence have it."""
        self.busy = False

    def _run(self, rows: int) -> Outputs:
        positions = self.begin(rows)
        tables = self._family.rotary(positions[None])
        hidden, captured = self._family.forward(self._ids[:rows], self, tables, self._capture)
        logits = self._family.head(hidden)
        return (logits, torch.cat(captured, dim=-1)) if captured else (logits,)


@dataclass(frozen=True, slots=True)
class NoSlot:
    """Why a sequence gets no slot."""

    reason: str


class Slots:
    """The slots of one target: one for each capture, layout and capacity.

    ``refused`` is why the target's forward cannot be recorded, None as long as it can.
    """

    def __init__(
        self,
        recorder: Callable[[], Recorder],
        block_rows: int,
        smallest: int = SMALLEST_ROWS,
        room: int = HEADROOM_ROWS,
    ) -> None:
        self.block_rows = block_rows
        self._smallest, self._room = smallest, room
        self.refused: str | None = None
        self._recorder = recorder
        self._slots: dict[tuple[tuple[int, ...], CacheLayout, int], Slot] = {}
        self._lock = threading.Lock()

    def capacity_for(self, length: int, most: int) -> int:
        """Return how many positions a slot for ``length`` holds: few sizes, none beyond a model of ``most``."""
        capacity = self._smallest
        while capacity < length + max(self._room, self.block_rows):
            capacity *= 2
        return max(min(capacity, most + self.block_rows), length + self.block_rows)

    def take(
        self, family: Family, key: tuple[tuple[int, ...], CacheLayout, int], like: Sequence[Held]
    ) -> Slot | NoSlot:
        """Return a free slot with everything recorded, made when there is none, or why there is none."""
        capture, _, capacity = key
        with self._lock:
            if self.refused is not None:
                return NoSlot(self.refused)
            slot = self._slots.get(key)
            if slot is None:
                with torch.inference_mode():
                    slot = Slot(family, capture, (like, capacity, self.block_rows), self._recorder())
                self._slots[key] = slot
            if slot.busy:
                return NoSlot("another sequence holds the static caches")
            slot.busy = True
        try:
            slot.record()
        except NotRecordableError as error:
            self.refused = f"the forward cannot be recorded: {error}"
            self._slots.clear()
            return NoSlot(self.refused)
        return slot
