"""The list of every other file of a result tree."""

from typing import Literal

from bridge.records.base import Count, Oid, Record, RunId, Sha256, Text


class ManifestEntry(Record):
    """One file: POSIX path relative to the result tree, size and digest."""

    path: Text
    bytes: Count
    sha256: Sha256


class Manifest(Record):
    """`manifest.json`: lists every other file, sorted by path, no extras."""

    schema_version: Literal[1] = 1
    id: RunId
    bus_id: Text
    request_oid: Oid
    attestation: Literal["none", "dsse"]
    files: tuple[ManifestEntry, ...]
