"""Read refs out of what git prints or traces.

Knows nothing about how git was called.
"""

from __future__ import annotations

import re

from bridge.bus.store.interface import Listing

# A line ends in "packet:        fetch< OID REF", then attributes; what goes out has "fetch>".
_PACKET = re.compile(rb"packet: +fetch([<>]) (.*)")
_REF = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^ ]+)(?: .*)?")


def parse_trace(trace: bytes) -> Listing | None:
    """Return the refs of an ls-refs exchange in a packet trace (gitprotocol-v2(5), ls-refs; a flush packet ends it).

    None when the trace holds no whole exchange, because the server speaks an older protocol or git traces otherwise.
    """
    refs: dict[str, str] = {}
    requested = complete = False
    received = sent = 0
    for match in _PACKET.finditer(trace):
        direction, text = match.groups()
        size = len(text) + 5  # a pkt-line has four bytes of length before and a newline after (gitprotocol-common(5))
        if direction == b">":
            requested = requested or text == b"command=ls-refs"
            sent += size
            continue
        received += size
        if not requested or complete:
            continue
        if text == b"0000":
            complete = True
        elif (entry := _REF.fullmatch(text)) is not None:
            refs[entry[2].decode("utf-8", "replace")] = entry[1].decode()
        elif not text.startswith(b"unborn "):
            return None
    return Listing(refs, received, bytes_sent=sent) if complete else None


def parse_ls_remote(output: bytes) -> Listing:
    """Return the refs that `git ls-remote` printed, peeled tags left out."""
    refs = {}
    for line in output.splitlines():
        oid, tab, ref = line.partition(b"\t")
        if tab and ref.startswith(b"refs/") and not ref.endswith(b"^{}"):
            refs[ref.decode("utf-8", "replace")] = oid.decode()
    return Listing(refs, len(output))
