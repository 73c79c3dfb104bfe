"""Announce samples to the runner as they happen, so that the runner's clock has seen them too.

One JSON line an event, one write each; a line below PIPE_BUF is atomic. Without a pipe every call does nothing.
"""

from __future__ import annotations

import json
import os


class SamplePipe:
    """The write end of the runner's pipe."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def plan(self, samples: int) -> None:
        """Say how many samples this process will go through: for whoever watches, nothing is judged by it."""
        self._write({"event": "plan", "samples": samples})

    def start(self, sample: str) -> None:
        """Say that a sample begins: call after the device is idle and before prefill."""
        self._write({"event": "start", "sample": sample})

    def first_token(self, sample: str) -> None:
        """Say that the first token is on the host."""
        self._write({"event": "first_token", "sample": sample})

    def end(self, sample: str, token_digest: str) -> None:
        """Say that the last token is on the host."""
        self._write({"event": "end", "sample": sample, "token_digest": token_digest})

    def _write(self, event: dict[str, str | int]) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, json.dumps(event, separators=(",", ":")).encode() + b"\n")
