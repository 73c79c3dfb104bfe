"""The log of one run: redacted, capped at head and tail, handed on in order.

Knows nothing about where the bytes come from or go to. Terminal escapes stay as they are: stripping them is the
reader's job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from bridge.executor.command.redaction import Redactor, contains_secret
from bridge.limits import ANSWER_MAX_CHARS
from bridge.records.places import PlaceNames

_MARK_BYTES: Final = 96  # room for the line that says what was cut


class LogKeeper:
    """Keeps at most `cap` bytes of a log.

    The first half is handed on as it comes, the last half at the end, and between them how much was cut.

    Attributes:
        seen_bytes: redacted bytes seen in all.
        cut_bytes: bytes that were thrown away; final after `end`.
    """

    def __init__(
        self,
        on_log: Callable[[bytes], None],
        cap: int,
        secrets: Iterable[str] = (),
        *,
        places: PlaceNames | None = None,
    ) -> None:
        """Begin a log.

        Args:
            on_log: gets its bytes in order.
            cap: how many bytes are kept.
            secrets: are masked.
            places: name this machine's folders in the executor's own lines; what the run wrote stays as it is.
        """
        self._on_log = on_log
        self._places = PlaceNames({}) if places is None else places
        self._redactor = Redactor(secrets)
        room = max(0, cap - _MARK_BYTES)
        self._head_bytes = room - room // 2
        self._tail_bytes = room // 2
        self._log = bytearray()
        self._head_given = 0
        self._tail = bytearray()
        self._heard: bytearray | None = None
        self.seen_bytes = 0
        self.cut_bytes = 0

    @property
    def redactions(self) -> int:
        """How many stretches were masked."""
        return self._redactor.count

    def feed(self, block: bytes) -> None:
        """Take what the run wrote."""
        if self._heard is not None:
            self._heard += block
            del self._heard[: -2 * ANSWER_MAX_CHARS]
        self._take(self._redactor.feed(block))

    def listen(self) -> bytearray:
        """Return what will hold the end of what the run writes from now on, as it wrote it."""
        self._heard = bytearray()
        return self._heard

    def note(self, text: str) -> None:
        """Add a line of the executor's own."""
        self.feed(f"[kakeya] {self._places.name(text)}\n".encode())

    def _take(self, block: bytes) -> None:
        self.seen_bytes += len(block)
        room = self._head_bytes - self._head_given
        if room > 0 and block:
            self._head_given += min(room, len(block))
            self._give(block[:room])
        self._tail += block[max(0, room) :]
        # Trimmed seldom, so that a flood costs a copy per buffer and not one per block.
        if len(self._tail) > 2 * self._tail_bytes + 65536:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_bytes
        if excess > 0:
            del self._tail[:excess]
            self.cut_bytes += excess

    def _give(self, block: bytes) -> None:
        if block:
            self._log += block
            self._on_log(bytes(block))

    def end(self) -> bytes:
        """Hand on what was held back; return the whole log kept."""
        self._take(self._redactor.end())
        self._trim()
        if self.cut_bytes:
            self._give(f"\n[kakeya] {self.cut_bytes} bytes of log cut here\n".encode())
        self._give(bytes(self._tail))
        self._tail.clear()
        return bytes(self._log)


def last_line(heard: bytearray, secrets: Iterable[str]) -> str | None:
    """Return the last line that says anything; None without one, where it is too long, or where it shows a secret."""
    lines = [line for line in bytes(heard).splitlines() if line.strip()]
    if not lines or contains_secret(lines[-1], tuple(secrets)):
        return None
    text = lines[-1].decode("utf-8", "replace").strip()
    return text if len(text) <= ANSWER_MAX_CHARS else None
