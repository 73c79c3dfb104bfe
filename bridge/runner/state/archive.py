"""Keep the reports of earlier attempts: from the second attempt on only the estimate over all of them may be quoted."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bridge.system.durable import write_atomically

_PREFIX = "reports/"
_LOADED_MAX_COUNT = 64  # more attempts than that of one configuration are not pooled, and the gate says so


def save(folder: Path, run_id: str, files: Mapping[str, bytes]) -> None:
    """Store the reports of a result tree."""
    reports = {path.removeprefix(_PREFIX): data.hex() for path, data in files.items() if path.startswith(_PREFIX)}
    if reports:
        write_atomically(folder / f"{run_id}.json.gz", gzip.compress(json.dumps(reports).encode(), 1, mtime=0))


def load(folder: Path, run_ids: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """Return the reports of the latest of these runs by run id; a run that left none is absent."""
    found: dict[str, dict[str, bytes]] = {}
    for run_id in run_ids[-_LOADED_MAX_COUNT:]:
        try:
            value = json.loads(gzip.decompress((folder / f"{run_id}.json.gz").read_bytes()))
        except FileNotFoundError:
            continue
        found[run_id] = {path: bytes.fromhex(data) for path, data in value.items()}
    return found
