"""SIGINT and SIGTERM become an exception: a command detaches, a run goes on."""

from __future__ import annotations

import signal
from types import FrameType


class DetachedError(BaseException):
    """The user or the system asked this command to go; carries the signal number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.number


def _raise(number: int, _frame: FrameType | None) -> None:
    # A second signal must find the default action: whoever insists gets out at once.
    signal.signal(number, signal.SIG_DFL)
    raise DetachedError(number)


def install() -> None:
    """Turn both signals into DetachedError for this process's main thread."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise)
