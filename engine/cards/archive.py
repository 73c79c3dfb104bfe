"""The weights of the small trained models, which a wheel leaves out: from a clone, or from the one archive made there.

Every model's card names the sha256 of its weights, so what comes from anywhere is either these weights or an error.
Knows no array library and no network.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.checkpoint import ASSETS, is_lfs_pointer
from engine.digests import file_digest
from engine.errors import ModelWeightsError, UsageError

WEIGHTS: Final = "model.safetensors"
CLONE_ASSETS: Final = "engine/assets"
TAKE: Final = "take a clone, or the archive, of this version of Kakeya"
MEMBER_MAX_BYTES: Final = 1 << 28
"""More than any of the small models has; bounds what an archive can make this process read."""


@dataclass(frozen=True)
class ShippedModel:
    """A model whose config, tokenizer and card are part of the package.

    Attributes:
        name: name of its folder.
        path: where its weights belong.
        sha256: hex digest its card gives them.
    """

    name: str
    path: Path
    sha256: str

    @property
    def member(self) -> str:
        """Return the name of its weights in an archive."""
        return f"{self.name}/{WEIGHTS}"

    def present(self) -> bool:
        """Return whether its weights are here; a git-lfs pointer is none."""
        return self.path.is_file() and not is_lfs_pointer(self.path)


def shipped(assets: Path = ASSETS) -> tuple[ShippedModel, ...]:
    """Return the models that the package describes, by name."""
    cards = sorted(assets.glob("*/card.json"))
    return tuple(
        ShippedModel(card.parent.name, card.parent / WEIGHTS, json.loads(card.read_bytes())["sha256"][WEIGHTS])
        for card in cards
    )


def pack(out: Path, assets: Path = ASSETS) -> int:
    """Write the archive; the same weights give the same bytes.

    Returns:
        Its size in bytes.

    Raises:
        ModelWeightsError: weights are not here, or not those their card names.
        UsageError: `out` exists.
    """
    if out.exists():
        raise UsageError(f"{out} exists; name a file that does not")
    for model in shipped(assets):
        if not model.present():
            raise ModelWeightsError(f"no weights at {model.path}; pack an archive in a clone that has them")
        _require(model, file_digest(model.path), str(model.path))
    with (
        out.open("xb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for model in shipped(assets):
            data = model.path.read_bytes()
            member = tarfile.TarInfo(model.member)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.stat().st_size


def add(source: Path, assets: Path = ASSETS) -> tuple[str, ...]:
    """Put the weights of an archive, or of a clone's folder, where the engine looks for them, once all are checked.

    Nothing of the source but file contents is used: no path, mode, owner or link of it reaches the disk.

    Returns:
        Names of the models that have their weights now.

    Raises:
        ModelWeightsError: it is neither, or lacks or changes a file, or the archive adds one; no weights were written.
        UsageError: this user may not write to the installation.
    """
    models = {model.member: model for model in shipped(assets)}
    weights: dict[str, bytes] = {}
    for name, data in _files(source, models) if source.is_dir() else _members(source):
        if name not in models or name in weights:
            raise ModelWeightsError(f"{source} holds {name[:100]!r}; expected one each of {', '.join(sorted(models))}")
        _require(models[name], hashlib.sha256(data).hexdigest(), f"{source}, {name}")
        weights[name] = data
    if missing := sorted(models.keys() - weights.keys()):
        raise ModelWeightsError(f"{source} lacks {', '.join(missing)}; {TAKE}")
    for name, data in weights.items():
        _write(models[name].path, data)
    return tuple(model.name for model in models.values())


def _files(clone: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield those of the weights that a clone has."""
    folder = clone / CLONE_ASSETS
    if not folder.is_dir():
        raise ModelWeightsError(f"{clone} has no folder {CLONE_ASSETS}; expected the folder of a clone; {TAKE}")
    for name in names:
        path = folder / name
        if not path.is_file():
            continue
        if is_lfs_pointer(path):
            raise ModelWeightsError(f"{path} is a git-lfs pointer, not weights; run `git lfs pull` in {clone}")
        if path.stat().st_size > MEMBER_MAX_BYTES:
            raise ModelWeightsError(f"{path} has more than {MEMBER_MAX_BYTES} bytes; {TAKE}")
        yield name, path.read_bytes()


def _members(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield what `pack` wrote, header by header: `tarfile.open` would read what an extension header announces whole."""
    try:
        with gzip.open(file) as plain:
            while (block := plain.read(tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
                header = tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "strict")
                if header.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or not 0 <= header.size <= MEMBER_MAX_BYTES:
                    kind = f"{header.name[:100]!r}, no plain file of at most {MEMBER_MAX_BYTES} bytes"
                    raise tarfile.ReadError(f"it holds {kind}")
                content = plain.read(header.size)
                padding = plain.read(-header.size % tarfile.BLOCKSIZE)
                if len(content) + len(padding) < header.size + -header.size % tarfile.BLOCKSIZE:
                    raise tarfile.ReadError(f"it ends within {header.name!r}")
                yield header.name, content
            while plain.read(1 << 20):  # to the checksum behind the end
                pass
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError) as error:
        raise ModelWeightsError(
            f"{file} cannot be read as an archive: {error}; expected kakeya-assets-VERSION.tar.gz, or a clone's folder"
        ) from error


def _require(model: ShippedModel, got: str, where: str) -> None:
    if got != model.sha256:
        raise ModelWeightsError(f"{where} has sha256 {got}; the card of {model.name} says {model.sha256}; {TAKE}")


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.chmod(0o644)
        part.replace(path)
    except PermissionError as error:
        raise UsageError(f"{error}; run this as the user that installed Kakeya") from error
    finally:
        part.unlink(missing_ok=True)
