"""Which NVIDIA cards a machine has, by their UUIDs: CUDA counts the fastest first, NVML by bus.

Knows nothing about runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NODES: Final = Path("/dev")


@dataclass(frozen=True)
class Card:
    """One NVIDIA card.

    Attributes:
        uuid: as `CUDA_VISIBLE_DEVICES` and NVML name it, such as ``GPU-5f1c…``.
        node: its device node, None where the driver does not say.
    """

    uuid: str
    node: str | None = None


def find_cards(among: Collection[str] | None = None, nodes: Path = _NODES) -> tuple[Card, ...] | None:
    """Return the cards of this machine, none where there is no driver; None where there are some and nobody names them.

    A list that names no card (a typo, a part of one: ``MIG-…``) lists some that nobody names.

    Args:
        among: numbers (as nvidia-smi counts) or UUIDs of those that count; None for all.
        nodes: the folder of device nodes.
    """
    unnamed = None if any(nodes.glob("nvidia[0-9]*")) else ()
    try:
        import pynvml
    except ImportError:
        return unnamed
    try:
        pynvml.nvmlInit()
        cards: list[Card] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            raw_uuid = pynvml.nvmlDeviceGetUUID(handle)
            uuid = raw_uuid.decode("ascii", "replace") if isinstance(raw_uuid, bytes) else str(raw_uuid)
            if among is None or str(index) in among or any(prefix and uuid.startswith(prefix) for prefix in among):
                cards.append(Card(uuid, _node(pynvml, handle)))
    except pynvml.NVMLError:
        return unnamed
    return tuple(cards) or (unnamed if among else ())


def _node(library: Any, handle: Any) -> str | None:
    with contextlib.suppress(AttributeError, library.NVMLError):
        return f"/dev/nvidia{library.nvmlDeviceGetMinorNumber(handle)}"
    return None
