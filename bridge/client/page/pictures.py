"""The files that a run kept, on its page: pictures are shown, everything else is listed.

A picture goes into an image element as data, also an SVG: there no browser runs its scripts or loads what it names.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Final

from bridge.client.page.markup import table, text

PICTURE_MAX_BYTES: Final = 200_000
_ALL_MAX_BYTES: Final = 500_000  # of the pictures of a page; base64 makes a third more of them
_KINDS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}


def kind_of(data: bytes) -> str | None:
    """Return the media type of a picture that browsers show, by its first bytes; None for anything else."""
    media_type = next((kind for first, kind in _KINDS.items() if data.startswith(first)), None)
    if media_type is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if media_type is None and data.lstrip()[:5] in {b"<?xml", b"<svg ", b"<svg>"} and b"<svg" in data[:2000]:
        return "image/svg+xml"
    return media_type


def kept_files(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the pictures among some files, then all of them by name and size.

    Args:
        files: what the run kept, by path.
    """
    room = _ALL_MAX_BYTES
    notes: dict[str, str] = {}
    for name, data in files.items():
        kind = kind_of(data)
        if kind is None:
            continue
        if len(data) > min(PICTURE_MAX_BYTES, room):
            notes[name] = "too large for a page; the files have it"
            continue
        room -= len(data)
        source = f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
        yield f'<figure><img alt="{text(name)}" src="{source}"><figcaption>{text(name)}</figcaption></figure>'
    yield table(("file", "bytes", ""), ((name, len(data), notes.get(name, "")) for name, data in files.items()))
