"""A pipe whose two ends are closed at different times, each once."""

from __future__ import annotations

import contextlib
import os


class Pipe:
    """Both ends of a pipe, closed at most once each."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)

    def close_read(self) -> None:
        """Close the reading end."""
        if self.read >= 0:
            os.close(self.read)
        self.read = -1

    def close_write(self) -> None:
        """Close the writing end."""
        if self.write >= 0:
            os.close(self.write)
        self.write = -1


def open_pipe(stack: contextlib.ExitStack) -> Pipe:
    """Return a pipe that is closed at the end of the block at the latest."""
    pipe = Pipe()
    stack.callback(pipe.close_write)
    stack.callback(pipe.close_read)
    return pipe
