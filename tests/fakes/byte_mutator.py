"""Changes bytes the way broken and hostile senders do; deterministic by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

TOKENS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b":",
    b"\\u0000",
    b"\\ud800",
    b"1e9",
    b"-0",
    b"true",
    b"null",
    b"\xff",
)
SMALL = (b"0", b"9", b"a", b"Z", b" ", b"\n", b"-", b".")


def mutations(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Yield `count` mutated documents: one to four changes each of a byte, a token, a cut, a repeat or a splice."""
    generator = random.Random(seed)
    for _ in range(count):
        data = bytearray(generator.choice(seeds))
        for _ in range(generator.choice((1, 1, 1, 2, 4))):
            _change(data, seeds, generator)
        yield bytes(data)


def _change(data: bytearray, seeds: Sequence[bytes], generator: random.Random) -> None:
    at = generator.randrange(len(data) + 1)
    match generator.randrange(6):
        case 0:
            data[at : at + 1] = bytes([generator.randrange(256)])
        case 1:
            data[at:at] = generator.choice(TOKENS)
        case 2:
            del data[at : at + generator.choice((1, 2, 8, 64))]
        case 3:
            data[at:at] = data[at : at + generator.choice((1, 8, 64))]
        case 4:
            other = generator.choice(seeds)
            data[at:] = other[generator.randrange(len(other)) :]
        case _:
            data[at : at + 1] = generator.choice(SMALL)
