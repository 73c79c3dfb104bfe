"""Digest the model folders a run can read, file by file.

Knows names and folders, no format. A model is found where a run looks: an absolute path, the policy's roots, the
installed package. The owner's home folder is none of these: a run has a home of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from bridge.records.run import ModelDigest
from bridge.runner.machine.file_digests import FileDigests
from bridge.runner.machine.model_shape import read_shape

_FILES_MAX_COUNT = 10_000


class ModelDigests:
    """Digests of model folders, by those of their files."""

    def __init__(self, cache: Path) -> None:
        self._files = FileDigests(cache)

    def of(self, names: Iterable[str], roots: Iterable[str], engine: Path | None) -> tuple[ModelDigest, ...]:
        """Return the digest of each model that is found; one that is not is the workload's to complain about."""
        folders = [(name, find_model(name, roots, engine)) for name in dict.fromkeys(names)]
        found = tuple(self._digest(name, folder) for name, folder in folders if folder is not None)
        self._files.keep()
        return found

    def _digest(self, name: str, folder: Path) -> ModelDigest:
        digest = hashlib.sha256()
        count = total = 0
        for file in sorted(path for path in folder.rglob("*") if path.is_file())[:_FILES_MAX_COUNT]:
            size = file.stat().st_size
            digest.update(f"{file.relative_to(folder).as_posix()} {size} {self._files.of(file)}\n".encode())
            count, total = count + 1, total + size
        return ModelDigest(
            name=name,
            path=str(folder),
            files=count,
            bytes=total,
            sha256=digest.hexdigest(),
            weights_sha256=self._weights(folder),
            shape=read_shape(folder),
        )

    def _weights(self, folder: Path) -> str | None:
        """Return the digest that the workload's report states of this model, defined at `ModelDigest`."""
        config, weights = folder / "config.json", sorted(folder.glob("model*.safetensors"))
        if not config.is_file() or not weights:
            return None
        lines = [f"{file.name} {self._files.of(file)}\n" for file in (config, *weights)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def find_model(name: str, roots: Iterable[str], engine: Path | None) -> Path | None:
    """Return the folder of a model, or None."""
    if Path(name).is_absolute():
        candidates = [Path(name)]
    else:
        candidates = [Path(root) / name for root in roots]
        if engine is not None:
            candidates.append(engine / "assets" / name)
    return next((folder for folder in candidates if folder.is_dir()), None)
