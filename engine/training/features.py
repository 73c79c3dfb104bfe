"""What a target computed of its responses, in a file: 16 bits a value, written when a row is first asked for.

A training that is ended at any point goes on with what is there: a row counts once its mark is set, which happens after
its values were written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from engine.errors import UsageError
from engine.training.checkpoint import write_text


class FeatureFile(MutableMapping[tuple[int, ...], torch.Tensor]):
    """Features ``[length, width]`` in bfloat16 by the ids of their row."""

    def __init__(self, work: Path, rows: list[tuple[int, ...]], width: int, layers: Sequence[int]) -> None:
        """Open the file of a work folder for these rows and layers of the target, or make it.

        Raises:
            UsageError: If the folder holds the features of other rows or layers.
        """
        work.mkdir(parents=True, exist_ok=True)
        ends = np.cumsum([len(row) for row in rows])
        self._places = {
            row: (int(end) - len(row), int(end), index) for index, (row, end) in enumerate(zip(rows, ends, strict=True))
        }
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        about = {"rows": digest, "width": width, "layers": list(layers)}
        stated = work / "features.json"
        if stated.exists() and json.loads(stated.read_text()) != about:
            raise UsageError(f"{work} holds the features of other rows or layers; give another --work, or remove it")
        mode: Literal["r+", "w+"] = "r+" if stated.exists() else "w+"
        shape = (int(ends[-1]), width)
        self._values = np.memmap(work / "features.bf16", np.int16, mode, shape=shape)
        self._marks = np.memmap(work / "features.done", np.uint8, mode, shape=(len(rows),))
        write_text(stated, json.dumps(about))

    def __getitem__(self, ids: tuple[int, ...]) -> torch.Tensor:
        start, end, index = self._places[ids]
        if not self._marks[index]:
            raise KeyError(ids)
        return torch.from_numpy(np.array(self._values[start:end])).view(torch.bfloat16)

    def __setitem__(self, ids: tuple[int, ...], features: torch.Tensor) -> None:
        start, end, index = self._places[ids]
        self._values[start:end] = features.contiguous().view(torch.int16).numpy()
        self._values.flush()
        self._marks[index] = 1

    def __delitem__(self, ids: tuple[int, ...]) -> None:
        self._marks[self._places[ids][2]] = 0

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (ids for ids, (_, _, index) in self._places.items() if self._marks[index])

    def __len__(self) -> int:
        return int(self._marks.sum())
