"""Errors of the engine, one tree.

EngineError
├── UsageError                 the command line or a parameter is wrong
├── ModelError                 a model folder cannot be used
│   ├── ModelNotFoundError     no folder of that name
│   ├── ModelConfigError       its config.json says something unusable
│   ├── ModelWeightsError      tensors missing, unexpected, of the wrong shape or not finite
│   ├── ModelMemoryError       it does not fit into the device's memory
│   └── ModelMismatchError     target and drafter do not belong together
├── PromptError                the prompt cannot be decoded with this model
├── BackendMissingError        an array library or a device is not there
├── ChildError                 a child process ended, or says that something went wrong
├── ObservationError           a drafter was shown tokens after a gap, or again
├── CacheCropError             a cache was asked for rows it no longer holds
├── SessionError               a drafting session was refused, or ended
└── NonFiniteLogitsError       the target itself produced NaN or infinite logits

Every message says what happened, what was got and expected, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def install_remedy(extra: str) -> str:
    """Return the command that adds an extra; it installs from a clone, because no released name is owned yet."""
    return f"in a clone of Kakeya: python -m pip install -e '.[{extra}]'"


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Import within this block what an extra installs.

    Raises:
        BackendMissingError: If it cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise BackendMissingError(f"{what} cannot be imported: {error}. Install it {install_remedy(extra)}") from error


class EngineError(Exception):
    """Base class: the command line turns it into one line on stderr and ``exit_code``."""

    exit_code = 1


class UsageError(EngineError):
    """Report a wrong argument of a command or a call."""

    exit_code = 2


class ModelError(EngineError):
    """Report an unusable model folder."""

    exit_code = 3


class ModelNotFoundError(ModelError):
    """Report a model name that no root knows."""


class ModelConfigError(ModelError):
    """Report a config.json the engine cannot honour."""


class ModelWeightsError(ModelError):
    """Report missing, unexpected, misshapen or non-finite tensors."""


class ModelMemoryError(ModelError):
    """Report a model that does not fit into the device's memory."""


class ModelMismatchError(ModelError):
    """Report a target and a drafter that do not fit each other."""


class PromptError(EngineError):
    """Report a prompt that cannot be decoded: empty, too long, ids out of range."""

    exit_code = 4


class BackendMissingError(EngineError):
    """Report a missing array library or device."""

    exit_code = 5


class ObservationError(EngineError):
    """Report committed tokens that do not follow those a drafter has seen."""

    @classmethod
    def check(cls, start: int, length: int) -> None:
        """Check that tokens at ``start`` follow ``length`` positions.

        Raises:
            ObservationError: If they leave a gap or repeat some.
        """
        if start != length:
            kind = "a gap" if start > length else "a repeat"
            raise cls(
                f"observed tokens start at position {start}; expected {length}, {kind} would shift all later ones"
            )


class PageError(EngineError):
    """A page of evicted rows could not be written, or is not what was written."""


class CacheCropError(EngineError):
    """Report a crop to a length whose rows are gone."""


class NonFiniteLogitsError(EngineError):
    """Report a plain target forward without a usable next token."""


class PeerError(EngineError):
    """Report an untrusted process that did not keep to the protocol it is asked in."""

    exit_code = 6


class ChildError(EngineError):
    """Report a child process that did not answer as it should."""

    exit_code = 5


class SessionError(EngineError):
    """Report what a drafting session is refused for; ``status`` is gRPC's name of the kind, such as ``NOT_FOUND``."""

    exit_code = 7

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
