"""Parse and write JSON with nothing left to chance.

Canonical form: sorted keys, separators ``,`` and ``:``, UTF-8, Python float repr, no newline. Stored bytes are signed.
Knows nothing about what the documents mean.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import accumulate
from math import isinf
from typing import Any

from bridge.limits import JSON_MAX_DEPTH, KIB, REQUEST_MAX_BYTES

_CHUNK_BYTES = 64 * KIB
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_INTEGER_MAX_DIGITS = 64  # beyond a few of them no product or sum fits into a double
_ZEROS = bytes.maketrans(b"123456789", b"000000000")


class StrictJsonError(ValueError):
    """The bytes are not strict JSON: size, depth, encoding, duplicate key, NaN, endless integer or plain syntax."""


def encode(value: object) -> bytes:
    """Return the canonical bytes of a JSON value.

    Raises:
        ValueError: the value holds NaN or an infinity, or is no JSON value.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def decode(data: bytes, *, max_bytes: int = REQUEST_MAX_BYTES, max_depth: int = JSON_MAX_DEPTH) -> Any:
    """Return the value of strict JSON bytes; size and depth are checked before parsing.

    Raises:
        StrictJsonError: too large, too deep, not UTF-8, a duplicate key, NaN or an infinity, an integer of more than 64
            digits, or a syntax error.
    """
    if len(data) > max_bytes:
        raise StrictJsonError(f"{len(data)} bytes, at most {max_bytes} are read")
    if _is_deeper(data, max_depth):
        raise StrictJsonError(f"nested deeper than {max_depth} levels")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"not UTF-8: byte {error.start}") from error
    # Looked for at once: most documents hold thousands of integers and none of that length.
    integer = _short if b"0" * (_INTEGER_MAX_DIGITS + 1) in data.translate(_ZEROS) else None
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite, parse_int=integer
        )
    except StrictJsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise StrictJsonError(f"not JSON: {error}") from error


def _is_deeper(data: bytes, max_depth: int) -> bool:
    """Return whether the nesting is deeper, by chunks: many short strings must not become as many objects at once."""
    depth = 0
    inside = escaped = False
    for begin in range(0, len(data), _CHUNK_BYTES):
        chunk = data[begin + escaped : begin + _CHUNK_BYTES]
        plain = _ESCAPE.sub(b"", chunk) if b"\\" in chunk else chunk
        escaped = plain.endswith(b"\\")  # what it escapes comes with the next chunk
        pieces = plain.split(b'"')
        brackets = b"".join(pieces[inside::2]).translate(None, _NO_BRACKETS)  # every other piece is in a string
        inside ^= len(pieces) % 2 == 0
        levels = list(accumulate(map(_STEPS.__getitem__, brackets), initial=depth))
        if max(levels) > max_depth:
            return True
        depth = levels[-1]
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise StrictJsonError(f"duplicate key {next(key for key in counts if counts[key] > 1)[:64]!r}")
    return result


def _refuse_constant(name: str) -> Any:
    raise StrictJsonError(f"{name} is not JSON")


def _short(text: str) -> int:
    digits = len(text.lstrip("-"))
    if digits > _INTEGER_MAX_DIGITS:
        raise StrictJsonError(f"an integer of {digits} digits, at most {_INTEGER_MAX_DIGITS} are read")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise StrictJsonError(f"{text[:32]} overflows a double")
    return value
