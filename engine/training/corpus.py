"""The corpus: Python's own library sources, read from the running interpreter, split by a hash of the path."""

from __future__ import annotations

import builtins
import hashlib
import keyword
import platform
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

EXCLUDED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "idle_test",
        "site-packages",
        "dist-packages",
        "encodings",
        "__pycache__",
        "pydoc_data",
        "ensurepip",
    }
)
MAX_FILE_BYTES = 200_000
HELD_OUT_FILES_IN_256 = 8
HELD_OUT_WORDS_IN_256 = 28
WORD_POOL_SIZE = 1600
WORD = re.compile(r"(?<![A-Za-z])[a-z]{4,9}(?![A-Za-z])")


@dataclass(frozen=True)
class SourceFile:
    """One source file: path relative to the library folder, sha256 of its bytes, text, and its side of the split."""

    path: str
    sha256: str
    text: str
    held_out: bool


@dataclass(frozen=True)
class WordPool:
    """Words for synthetic rows; `held_out` ones never occur in a training row that is synthetic."""

    training: tuple[str, ...]
    held_out: tuple[str, ...]


def hash_byte(text: str) -> int:
    """Return the first byte of sha256 of `text`: the one rule behind every split."""
    return hashlib.sha256(text.encode()).digest()[0]


def library_folder() -> Path:
    """Return the folder of the running interpreter's library sources."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_corpus(folder: Path | None = None) -> tuple[SourceFile, ...]:
    """Read library sources in path order, without tests, tables and very large files; the interpreter's own once."""
    return _library() if folder is None else _sources(folder)


@cache
def _library() -> tuple[SourceFile, ...]:
    return _sources(library_folder())


def _sources(root: Path) -> tuple[SourceFile, ...]:
    files = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if EXCLUDED_FOLDERS.intersection(relative.parts[:-1]) or relative.parts[0].startswith("config-"):
            continue
        raw = path.read_bytes()
        if not 200 <= len(raw) <= MAX_FILE_BYTES:
            continue
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            continue
        name = relative.as_posix()
        held_out = hash_byte("file:" + name) < HELD_OUT_FILES_IN_256
        files.append(SourceFile(name, hashlib.sha256(raw).hexdigest(), text.replace("\r\n", "\n"), held_out))
    return tuple(files)


def word_pool(files: tuple[SourceFile, ...]) -> WordPool:
    """Return the most frequent lowercase words of the training files, split by hash."""
    counts: Counter[str] = Counter()
    for file in files:
        if not file.held_out:
            counts.update(WORD.findall(file.text))
    reserved = set(keyword.kwlist) | set(dir(builtins))
    ranked = sorted((-count, word) for word, count in counts.items() if word not in reserved)
    words = [word for _, word in ranked[:WORD_POOL_SIZE]]
    held_out = tuple(word for word in words if hash_byte("word:" + word) < HELD_OUT_WORDS_IN_256)
    return WordPool(tuple(word for word in words if word not in set(held_out)), held_out)


def corpus_record(files: tuple[SourceFile, ...]) -> dict[str, object]:
    """Return what a model card states about the corpus: interpreter version, per-file digests and the split."""
    listing = "".join(f"{file.sha256}  {file.path}\n" for file in files)
    return {
        "python": platform.python_version(),
        "files": len(files),
        "held_out_files": sum(file.held_out for file in files),
        "characters": sum(len(file.text) for file in files),
        "listing_sha256": hashlib.sha256(listing.encode()).hexdigest(),
        "file_sha256": {file.path: file.sha256 for file in files},
        "held_out": [file.path for file in files if file.held_out],
    }
