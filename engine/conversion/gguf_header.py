"""A bounded look at the header of a GGUF file, before any library reads it.

Every count, length and offset is compared with the bytes that the file has, so that a header which claims a million
million tensors costs nothing. Values are not kept but for the few that are asked for.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from engine.errors import ModelWeightsError, needs_extra

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MOST_ENTRIES: Final = 4096
MOST_TENSORS: Final = 65536
MOST_DIMENSIONS: Final = 4
LONGEST_NAME: Final = 1 << 16
LONGEST_TEXT: Final = 1 << 24
"""Bytes of a value that is a text, such as a chat template."""
ALIGNMENT: Final = "general.alignment"
USUAL_ALIGNMENT: Final = 32
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
PARTS: Final = "split.count"
TOKENS: Final = "tokenizer.ggml.tokens"
EMBEDDING: Final = "token_embd.weight"


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says of itself.

    Attributes:
        architecture: of the model, in llama.cpp's words.
        values: its scalar entries, and texts.
        lengths: of its lists.
        tensors: shapes by name, outermost dimension first.
        kinds: how tensors are packed, each with how many are.
    """

    architecture: str
    values: dict[str, Any] = field(repr=False)
    lengths: dict[str, int] = field(repr=False)
    tensors: dict[str, tuple[int, ...]] = field(repr=False)
    kinds: dict[str, int]

    @property
    def parameters(self) -> int:
        """Values of all tensors."""
        return sum(math.prod(shape) for shape in self.tensors.values())


def read_header(file: Path) -> GgufHeader:
    """Return what a GGUF file says of itself.

    Raises:
        BackendMissingError: If the `gguf` package is not installed.
        ModelWeightsError: If it is no whole GGUF file, or one of tensors that cannot be unpacked.
    """
    with needs_extra("models", "GGUF"):
        import gguf
    with file.open("rb") as stream:
        reading = _Reading(stream, file, file.stat().st_size)
        if reading.take(4) != MAGIC:
            raise ModelWeightsError(f"{file} is no GGUF file; expected one that begins with {MAGIC.decode()}")
        version = reading.number("I")
        if version not in VERSIONS:
            raise ModelWeightsError(f"{file} is GGUF of version {version}; expected {' or '.join(map(str, VERSIONS))}")
        count, entries = reading.number("Q"), reading.number("Q")
        if count > MOST_TENSORS or entries > MOST_ENTRIES:
            raise ModelWeightsError(
                f"{file} claims {count} tensors and {entries} entries; expected at most {MOST_TENSORS} and "
                f"{MOST_ENTRIES}. Fetch the file again."
            )
        values: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        for _ in range(entries):
            name, kind = reading.text(LONGEST_NAME), reading.number("I")
            if kind == _ARRAY:
                lengths[name] = reading.skip_list()
            else:
                values[name] = reading.value(kind)
        parts = values.get(PARTS)
        if isinstance(parts, int) and parts > 1:
            raise ModelWeightsError(
                f"{file} is one of {parts} parts; expected a whole file. Join them first, with llama-gguf-split --merge"
            )
        listed = [reading.tensor() for _ in range(count)]
        alignment = values.get(ALIGNMENT, USUAL_ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ModelWeightsError(
                f"{ALIGNMENT} in {file} is {alignment!r}; expected a whole number above 0. Fetch the file again."
            )
        data = -(-stream.tell() // alignment) * alignment
    kinds: dict[str, int] = {}
    for name, shape, number, offset in listed:
        try:
            kind = gguf.GGMLQuantizationType(number)
            block, width = gguf.GGML_QUANT_SIZES[kind]
        except (KeyError, ValueError) as error:
            raise ModelWeightsError(
                f"tensor {name} in {file} is packed as type {number}, which the gguf package does not know; use a file "
                "of another quantisation, such as Q8_0"
            ) from error
        end = data + offset + math.prod(shape) // block * width
        if shape[-1] % block or end > reading.size:
            raise ModelWeightsError(
                f"tensor {name} in {file} ends at byte {end} of {reading.size}; the file is not whole. Fetch it again."
            )
        kinds[kind.name] = kinds.get(kind.name, 0) + 1
    tensors = {name: shape for name, shape, _, _ in listed}
    tokens, rows = lengths.get(TOKENS), tensors.get(EMBEDDING, (0,))[0]
    if tokens != rows:
        raise ModelWeightsError(
            f"{file} lists {tokens} tokens and has {rows} rows of the embedding; expected as many. Use another file."
        )
    return GgufHeader(str(values.get("general.architecture")), values, lengths, tensors, kinds)


@dataclass(slots=True)
class _Reading:
    """A file that is read from its beginning, and never beyond its end."""

    stream: BinaryIO
    file: Path
    size: int

    def take(self, count: int) -> bytes:
        self.check(count)
        return self.stream.read(count)

    def skip(self, count: int) -> None:
        """Go on behind so many bytes, which are not read."""
        self.check(count)
        self.stream.seek(count, os.SEEK_CUR)

    def check(self, count: int) -> None:
        if count > self.size - self.stream.tell():
            raise ModelWeightsError(
                f"{self.file} ends in its header, at {self.size} bytes; the file is not whole. Fetch it again."
            )

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(form)))[0]

    def text(self, longest: int) -> str:
        length = self.number("Q")
        self.check(length)
        if length > longest:
            raise ModelWeightsError(f"{self.file} has a name or text of {length} bytes; fetch the file again")
        return self.take(length).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text(LONGEST_TEXT)
        if kind not in _SCALARS:
            raise ModelWeightsError(
                f"{self.file} has an entry of type {kind}, which GGUF does not have; fetch it again"
            )
        return self.number(_SCALARS[kind])

    def skip_list(self) -> int:
        """Skip a list; return how long it is."""
        kind, count = self.number("I"), self.number("Q")
        if kind in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[kind]))
            return int(count)
        if kind != _STRING or count > self.size:
            raise ModelWeightsError(f"{self.file} has a list of {count} entries of type {kind}; fetch the file again")
        for _ in range(count):
            self.skip(self.number("Q"))
        return int(count)

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Return name, shape, type and offset of the next tensor."""
        name, dimensions = self.text(LONGEST_NAME), self.number("I")
        if not 0 < dimensions <= MOST_DIMENSIONS:
            raise ModelWeightsError(f"tensor {name} in {self.file} has {dimensions} dimensions; fetch the file again")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        return name, shape[::-1], self.number("I"), self.number("Q")
