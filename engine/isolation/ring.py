"""Two ranks of an array library's own distributed backend on this machine: sizes, a sum, a message there and back.

A peer that stops hangs these libraries for ever (neither has a time limit on receiving), so the ranks are processes of
their own and both are killed when the time is over. ``python -m engine.isolation.ring LIBRARY RANK ADDRESSES`` is one.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.isolation.children import run_together

LIBRARIES = {"mlx": "mlx.distributed ring", "torch": "torch.distributed gloo"}
SIZE = 2
PINGS = 200
LIMIT_S = 180.0
"""Importing the library included; what takes longer hangs."""


@dataclass(frozen=True, slots=True)
class RingFound:
    """What rank 0 saw: its rank, how many there are, the sum of (rank + 1) over them, a round trip's median seconds."""

    rank: int
    size: int
    total: float
    round_trip_s: float

    @property
    def ok(self) -> bool:
        """Whether the sum is that of every rank."""
        return (self.rank, self.size, self.total) == (0, SIZE, SIZE * (SIZE + 1) / 2)


def probe_ring(library: str) -> RingFound:
    """Start two ranks, have them sum and answer each other, and end them, by force if need be.

    Raises:
        ChildError: If a rank fails, or they are not done in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hosts.json"
        hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in _free_ports()]))
        each = [(library, str(rank), str(hosts)) for rank in range(SIZE)]
        answers = run_together(LIBRARIES[library], "engine.isolation.ring", each, LIMIT_S)
    return RingFound(**json.loads(answers[0]))


def _free_ports() -> list[int]:
    """Return ports that nobody has now."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(SIZE)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def _mlx(rank: int, hosts: Path) -> dict[str, Any]:
    os.environ |= {"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)}
    import mlx.core as mx

    group = mx.distributed.init(strict=True, backend="ring")
    sums: Any = mx.distributed.all_sum(mx.array([rank + 1.0]))
    total = float(sums.item())
    word, other, taken = mx.zeros(25), 1 - rank, []
    for _ in range(PINGS):
        began_s = time.perf_counter()
        if rank == 0:
            mx.eval(mx.distributed.send(word, other))
            mx.eval(mx.distributed.recv_like(word, other))
        else:
            mx.eval(mx.distributed.recv_like(word, other))
            mx.eval(mx.distributed.send(word, other))
        taken.append(time.perf_counter() - began_s)
    return {"rank": group.rank(), "size": group.size(), "total": total, "round_trip_s": sorted(taken)[PINGS // 2]}


def _torch(rank: int, hosts: Path) -> dict[str, Any]:
    import torch
    from torch import distributed

    address = json.loads(hosts.read_text())[0][0]
    distributed.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=SIZE)
    sums = torch.tensor([rank + 1.0])
    distributed.all_reduce(sums)
    word, other, taken = torch.zeros(25), 1 - rank, []
    for _ in range(PINGS):
        began_s = time.perf_counter()
        if rank == 0:
            distributed.send(word, other)
            distributed.recv(word, other)
        else:
            distributed.recv(word, other)
            distributed.send(word, other)
        taken.append(time.perf_counter() - began_s)
    figures = {"rank": distributed.get_rank(), "size": distributed.get_world_size(), "total": float(sums.item())}
    distributed.destroy_process_group()
    return figures | {"round_trip_s": sorted(taken)[PINGS // 2]}


def main() -> None:
    """Be one rank, and say what it saw."""
    library, rank, hosts = sys.argv[1:4]
    figures = {"mlx": _mlx, "torch": _torch}[library](int(rank), Path(hosts))
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
