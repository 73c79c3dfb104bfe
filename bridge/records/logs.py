"""One chunk of a live log."""

from typing import Literal

from bridge.records.base import Count, Record, RunId, Sha256


class LogHead(Record):
    """`head.json` beside `chunk` in the tree of a log commit.

    Attributes:
        seq: 0 for the first chunk, then one more each.
        offset: byte offset of this chunk in the whole log.
        length: bytes of this chunk.
        sha256: of this chunk.
        final: whether no chunk follows.
    """

    schema_version: Literal[1] = 1
    id: RunId
    seq: Count
    offset: Count
    length: Count
    sha256: Sha256
    final: bool
