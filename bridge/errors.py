"""Every error the bridge raises on purpose, with the exit code it ends in.

::

    KakeyaError                       70  a bug, when nothing below fits
    ├── UsageError                     2  the command line or a configuration file is wrong
    │   ├── PresetNotFoundError        2
    │   ├── ParameterError             2
    │   ├── RouteMissingError          2  the folder of the route is not there
    │   ├── RunNotFoundError           2
    │   └── RequestRejectedError       2  a request that is not a request
    ├── InfrastructureError            3  nothing is wrong with the request
    │   ├── GitError                   3
    │   │   └── RemoteError            3  unreachable or timed out: the same call may work later
    │   │       └── RemoteRefusedError 3  the remote says no: the same call will not work
    │   ├── BusError                   3
    │   │   ├── ObjectError            3  an object is not what its reader needs, and never will be
    │   │   ├── BusMissingError        3  the remote carries no bus
    │   │   ├── WrongBusError          3  the remote carries another bus
    │   │   ├── NoRunnerError          3  nobody has been seen who could run it
    │   │   └── FencedError            3  somebody else owns the claim now
    │   ├── HostingError               3  the hosting site's API refused or did not answer
    │   ├── PublishError               3
    │   ├── LeftRunningError           3  the run goes on without this process
    │   ├── SandboxUnavailableError    3
    │   └── JournalError               3
    ├── EndedKeyError                 11  the bus's owner has revoked or retired this runner
    ├── TwinError                      3  another runner of this name lives
    ├── BusMovedError                  3  the bus's owner moved it to another remote
    ├── PolicyRefusedError             7  the host's owner does not allow it
    ├── PendingError                   8  the wait ended before the run did
    └── IntegrityError                 1  bytes are not what they claim to be

A message says what happened, what was got and what was expected, and what to do next.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import ClassVar, Final

REMEDY_MARK: Final = "; next: "
"""Between what happened and what to do next, where both are one line of a record."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHOWN_WORDS: Final = 12
_FREE: Final = (
    "free some space: the data and state folders, TMPDIR and, for a requester, the clone's .git are written to"
)


def install_remedy(extra: str, python: str = "python") -> str:
    """Return the command that adds an extra; it installs from a clone, because no released name is owned yet."""
    return f"in a clone of Kakeya: {python} -m pip install -e '.[{extra}]'"


def meant(word: str, choices: Collection[str], *, most: int = 3) -> str:
    """Return what to say of a word that is none of the choices: the nearest of them, else all.

    Those that it begins come first: what is typed by halves is more often short than wrong. Case makes nobody wrong.
    """
    from difflib import get_close_matches

    typed, folded = word.casefold(), {choice.casefold(): choice for choice in choices}
    begun = [key for key in folded if typed and key.startswith(typed)]
    matches = list(dict.fromkeys([*begun, *get_close_matches(typed, folded, n=most)]))[:most]
    near = [folded[key] for key in matches]
    if near:
        return f"did you mean {' or '.join(near)}?"
    shown = list(choices)[:_SHOWN_WORDS]
    more = f" and {len(choices) - len(shown)} more" if len(choices) > len(shown) else ""
    return f"known: {', '.join(shown) or 'none'}{more}"


class KakeyaError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        remedy: the next thing to do, a sentence or a command, or None when the message already says it.
        run_id: the run it is about, once that has been sent.
        permanent: whether the same call would end in it again, as long as nobody changes anything.
    """

    exit_code: ClassVar[int] = 70
    reason: ClassVar[str] = "bug"
    permanent: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.run_id: str | None = None

    @property
    def message(self) -> str:
        """The message without its remedy."""
        return str(self.args[0])

    @property
    def line(self) -> str:
        """Message and remedy as one line of a record."""
        return self.message if self.remedy is None else f"{self.message}{REMEDY_MARK}{self.remedy}"

    def __str__(self) -> str:
        return self.message if self.remedy is None else f"{self.message}\n  next: {self.remedy}"


class UsageError(KakeyaError):
    """The command line or a configuration file is wrong."""

    exit_code = 2
    reason = "usage"


class PresetNotFoundError(UsageError):
    """No preset has this name."""

    def __init__(self, name: str, names: tuple[str, ...]) -> None:
        super().__init__(f"unknown preset {name!r}; {meant(name, names)}", remedy="kakeya-mac presets")


class ParameterError(UsageError):
    """A parameter is unknown, missing, of the wrong type or out of its bounds."""


class RouteMissingError(UsageError):
    """The route of a bus names a folder that is not there: not mounted, or gone."""


class RunNotFoundError(UsageError):
    """No run, or more than one, matches this id."""


class RequestRejectedError(UsageError):
    """The request's bytes are not a valid request for this bus and this ref."""

    reason = "request_rejected"


class InfrastructureError(KakeyaError):
    """Something between requester and host failed; the request itself may be fine."""

    exit_code = 3
    reason = "infrastructure"


class GitError(InfrastructureError):
    """A git command failed; the message shows command, code and stderr."""

    reason = "git"


class RemoteError(GitError):
    """The remote is unreachable, refused the operation or did not answer in time.

    Attributes:
        cause: what stands behind it, as `bridge.system.remote_words.Cause` names it; empty where nobody looked.
        is_passing: whether the same call may work a little later, without anybody doing anything.
    """

    reason = "remote"

    def __init__(self, message: str, *, remedy: str | None = None, cause: str = "", is_passing: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.cause, self.is_passing = cause, is_passing


class RemoteRefusedError(RemoteError):
    """The remote answered and refuses: credentials, rights or the route are wrong, and trying again changes nothing."""

    permanent = True


class BusError(InfrastructureError):
    """The bus is not usable as it is."""

    reason = "bus"


class ObjectError(BusError):
    """An object is not what its reader needs and never will be: too large, malformed, or of another kind."""

    permanent = True


class BusMissingError(BusError):
    """The remote carries no bus record."""

    permanent = True


WRONG_BUS_REMEDY: Final = (
    "choose the right remote with --bus ROUTE; whether the other bus is meant, its owner says, not the remote: "
    "only then --bus ROUTE#ID"
)
"""No command that can be pasted: agents follow remedies, and a pin exists for just this moment."""


class WrongBusError(BusError):
    """The remote carries another bus than the pinned one."""

    permanent = True


class NoRunnerError(BusError):
    """No live runner has been seen on this bus."""

    reason = "no_runner"


class FencedError(BusError):
    """The claim moved on without us: somebody else owns it, or it was ended."""

    reason = "fenced"


class BegunError(FencedError):
    """Another claim began the run, or somebody wrote its log: it is not begun again, although no claim says so."""


class UntrustedLogError(BusError):
    """A live log on the bus is not signed by its runner; the result's own log is."""


class HostingError(InfrastructureError):
    """The API of the site that hosts the repository refused, or did not answer; the git side is not concerned.

    Attributes:
        status: HTTP status, 0 when no answer came.
        is_limit: whether a rate limit is spent, which the site says with a status of its own or with 403.
    """

    reason = "hosting"

    def __init__(self, message: str, *, remedy: str | None = None, status: int = 0, is_limit: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status
        self.is_limit = is_limit


class PublishError(InfrastructureError):
    """A finished result could not be delivered; it is kept in the spool."""

    reason = "publish_failed"


class LeftRunningError(InfrastructureError):
    """The run goes on without this process; a later one follows it."""


class GivenUpError(RemoteError, LeftRunningError):
    """A call to the remote was given up because this process is to end; a later one goes on from there."""


class SandboxUnavailableError(InfrastructureError):
    """The preset or the policy requires a sandbox that this host cannot give."""

    reason = "sandbox_unavailable"


class JournalError(InfrastructureError):
    """The journal cannot be written, or its chain does not hold."""

    reason = "journal"


class EndedKeyError(KakeyaError):
    """The bus's owner has revoked or retired this runner's key: nothing that it would sign counts."""

    exit_code = 11
    reason = "untrusted"


class TwinError(KakeyaError):
    """Another runner of this runner's name lives: trying on does not help."""

    exit_code = 3
    reason = "infrastructure"


class BusMovedError(KakeyaError):
    """The bus is at another remote from now on: trying on does not help.

    Attributes:
        moved_to: where it is now, as its owner told it.
        is_signed: whether the record that says so is the owner's; if not, anybody who may push wrote it.
    """

    exit_code = 3
    reason = "bus"
    permanent = True

    def __init__(self, message: str, *, moved_to: str, is_signed: bool, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.moved_to, self.is_signed = moved_to, is_signed


class PolicyRefusedError(KakeyaError):
    """The host's policy does not allow this request."""

    exit_code = 7
    reason = "policy_refused"


class PendingError(KakeyaError):
    """The wait ended before the run did; nothing is lost."""

    exit_code = 8
    reason = "pending"


class IntegrityError(KakeyaError):
    """Bytes are not what they claim to be."""

    exit_code = 1
    reason = "integrity"


def of_system(error: OSError, remedy: str | None = None) -> InfrastructureError:
    """Return what the operating system refused, in a line for people; where a disk is full, with what helps.

    Args:
        error: what it raised.
        remedy: what to do next where it does not say.
    """
    where = f"{error.filename}: " if error.filename else ""
    return InfrastructureError(f"{where}{error.strerror or error}", remedy=_FREE if error.errno in _FULL else remedy)
