"""Carry a claim chain in one file: raw commit objects, so that their ids can be recomputed without a repository.

A line a commit, because a long run renews its claim thousands of times and a result tree holds few files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bridge import strictjson
from bridge.limits import CLAIM_CHAIN_MAX_COUNT, KIB, RESULT_MAX_BYTES

CLAIM_FILE = b"claim.json"


@dataclass(frozen=True)
class ChainLink:
    """One commit of a chain as it is stored.

    Attributes:
        oid: the id git gives the commit.
        parent: its first parent, or None.
        claim: the claim's JSON bytes.
        holds: whether the commit's tree is exactly this claim.
        message: the commit's message, where a runner's signature of the claim stands.
    """

    oid: str
    parent: str | None
    claim: bytes
    holds: bool
    message: str


def write_chain(claims: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return `claims.jsonl`: {"claim", "commit"} a line, oldest first; bytes are written as latin-1 text."""
    lines = ({"commit": commit.decode("latin-1"), "claim": claim.decode("latin-1")} for commit, claim in claims)
    return b"".join(strictjson.encode(line) + b"\n" for line in lines)


def read_chain(data: bytes, *, hex_chars: int) -> tuple[ChainLink, ...]:
    """Return the links of `claims.jsonl`.

    Args:
        data: the file.
        hex_chars: 40 where the repository's ids are sha1, 64 where they are sha256.

    Raises:
        ValueError: not such a file.
    """
    lines = data.splitlines()
    if len(lines) > CLAIM_CHAIN_MAX_COUNT or len(data) > RESULT_MAX_BYTES:
        raise ValueError(f"{len(lines)} commits, at most {CLAIM_CHAIN_MAX_COUNT}")
    return tuple(_link(line, hex_chars) for line in lines)


def git_oid(kind: bytes, data: bytes, *, hex_chars: int = 40) -> str:
    """Return the id git gives an object: sha1 for 40 characters, sha256 for 64."""
    content = kind + b" " + str(len(data)).encode() + b"\0" + data
    if hex_chars == 64:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


def _link(line: bytes, hex_chars: int) -> ChainLink:
    value = strictjson.decode(line, max_bytes=64 * KIB, max_depth=1)
    if not isinstance(value, dict) or set(value) != {"claim", "commit"} or not all(map(_is_text, value.values())):
        raise ValueError("a line is not {claim, commit}")
    commit, claim = value["commit"].encode("latin-1"), value["claim"].encode("latin-1")
    head, _, message = commit.partition(b"\n\n")
    header = head.split(b"\n")
    parents = [part.removeprefix(b"parent ").decode("latin-1") for part in header if part.startswith(b"parent ")]
    blob = bytes.fromhex(git_oid(b"blob", claim, hex_chars=hex_chars))
    tree = git_oid(b"tree", b"100644 " + CLAIM_FILE + b"\0" + blob, hex_chars=hex_chars)
    return ChainLink(
        oid=git_oid(b"commit", commit, hex_chars=hex_chars),
        parent=parents[0] if parents else None,
        claim=claim,
        holds=header[0] == b"tree " + tree.encode(),
        message=message.decode("latin-1"),
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)
