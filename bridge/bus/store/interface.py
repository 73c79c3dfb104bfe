"""What the protocol needs of a remote: refs with compare-and-swap, and git objects.

`bridge.bus.store.git` does it with git; the tests' simulator does it in memory and can lose, delay and repeat. The
protocol itself (`bridge.bus.refbus`) is the same code over both. Knows nothing about claims, logs or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bridge.errors import BusError, ObjectError

if TYPE_CHECKING:
    from bridge.system.gitobjects import Committer, GitObject, Kind


class MissingObjectError(BusError):
    """An object is not here, and the remote does not give it: its ref moved, or the remote has lost it."""


class ObjectBoundError(ObjectError):
    """An object, or what had to be fetched for it, is larger than its reader allows."""


class MalformedObjectError(ObjectError):
    """An object is of another kind than expected, or git's own check or the bridge's parser refuses it."""


@dataclass(frozen=True)
class Listing:
    """Refs and their tips.

    Attributes:
        bytes_received, bytes_sent: what it cost on the wire, 0 when unknown.
        unasked: whether the remote sent all of its refs, whatever was asked for.
    """

    refs: Mapping[str, str]
    bytes_received: int = 0
    unasked: bool = False
    bytes_sent: int = 0


@dataclass(frozen=True)
class RefUpdate:
    """Move one ref from exactly `expect` to `new`; None means absent."""

    ref: str
    new: str | None
    expect: str | None


@dataclass(frozen=True)
class RefAnswer:
    """What the remote said of one ref; true where it took the update.

    Attributes:
        taken: whether it took it.
        why: why it did not, in its own words, cleaned, on one bounded line; empty where there are none.
    """

    taken: bool
    why: str = ""

    def __bool__(self) -> bool:
        """Return whether it was taken."""
        return self.taken


class Reader(Protocol):
    """Reads objects one after the other, cheaply."""

    def read(self, oid: str, kind: Kind, max_bytes: int) -> bytes:
        """Return an object's content.

        Raises:
            MissingObjectError: it is not here.
            MalformedObjectError: it is of another kind.
            ObjectBoundError: it is larger than `max_bytes`.
        """
        ...


class RefStore(Protocol):
    """A remote and the local objects prepared for it."""

    @property
    def route(self) -> str:
        """Where the remote is: with the user of an ssh URL, whom a pasted command needs, with no secret of a URL."""
        ...

    @property
    def committer(self) -> Committer:
        """Who makes the commits of this side."""
        ...

    def list(
        self, prefixes: Sequence[str], *, bring: Sequence[str] = (), max_bytes: int = 0, newest_only: bool = False
    ) -> Listing:
        """Return every ref that starts with one of the prefixes.

        Args:
            prefixes: how the refs begin.
            bring: full names of refs that are listed too, and made readable in the same call where they are there and
                that is possible; where it was not, `obtain` makes them so, or says why not.
            max_bytes: the bound of what is brought.
            newest_only: whether of each only the newest commit is brought, without git's own check; none of them where
                one is not there. For a store that is dropped again.

        Raises:
            RemoteError: the remote did not answer.
        """
        ...

    def mark(self, prefixes: Sequence[str]) -> Hashable:
        """Return a value that differs once such a ref has changed, at next to no cost; None where only a listing tells.

        One that did not differ proves nothing: whoever waits for a change lists all the same, only less often.
        """
        ...

    def push(self, updates: Sequence[RefUpdate], *, atomic: bool = False) -> Mapping[str, RefAnswer]:
        """Send updates, each its own compare-and-swap; return what the remote said of each ref it spoke of.

        A ref that is missing in the answer may or may not have moved. With `atomic` all move or none, but for those
        that are where they were to go; a remote that cannot do that moves each on its own.

        Raises:
            RemoteError: the remote's answer was lost or never came; anything may have happened.
        """
        ...

    def pause(self, tries: int) -> bool:
        """Wait before one more try of a push that failed and may pass.

        Args:
            tries: how many pauses there were already; each is longer than the one before.

        Returns:
            False, at once, where there were enough.
        """
        ...

    def write(self, objects: Iterable[GitObject], *, durable: bool = False) -> None:
        """Store objects locally; `durable` means that they survive a power cut once this returns."""
        ...

    def keep(self, name: str, oid: str | None) -> None:
        """Keep an object that is here, and what it reaches, until the same name keeps another one or none."""
        ...

    def tend(self) -> None:
        """Pack and delete what one's own copies have too much of; slow at times, so when nothing waits for it."""
        ...

    def tend_apart(self) -> None:
        """Have a process of its own do what `tend` does, if there is something to do, and do not wait for it."""
        ...

    def obtain(self, refs: Mapping[str, str], *, max_bytes: int) -> None:
        """Make tips (ref -> oid), with all that they reach, readable here; what is here already costs nothing.

        Raises:
            MissingObjectError: the remote does not give one of them.
            ObjectBoundError: more than `max_bytes` would have to be received.
            MalformedObjectError: one of them does not pass git's check.
            RemoteError: the remote did not answer.
        """
        ...

    def reader(self) -> AbstractContextManager[Reader]:
        """Open the local objects for reading."""
        ...

    def isolate(
        self,
        name: str,
        oids: Sequence[str],
        *,
        max_bytes: int,
        commits: int = 1,
        checked: bool = True,
        borrows: bool = True,
        patient: bool = True,
        shallow_trees: bool = False,
    ) -> RefStore:
        """Return a store of its own, over this one's objects, holding these untrusted commits without their history.

        With more than one of `commits` it holds so much of their history too, and all of it where it is shorter.
        Kept under its name until `drop`; a second call with the same commits fetches nothing. Without `checked` git's
        own check of each object is left out, as one malformed object would cost all of them: only for what strict
        parsers read and nobody checks out. Without `borrows` it has none of this one's objects: what it holds came
        from the remote just now. One that is not `patient` gives up where a call that moves something would go on: what
        strangers pushed is looked at between other things that wait. With `shallow_trees` files that are large, or lie
        deeper than in a folder of the tree, are left out where the remote does that.

        Raises:
            MissingObjectError: the remote does not give one of them.
            ObjectBoundError: more than `max_bytes` would have to be received.
            MalformedObjectError: one of them does not pass git's check.
            RemoteError: the remote did not answer.
        """
        ...

    def drop(self, name: str) -> None:
        """Delete an isolated store, if there is one."""
        ...

    def stop_when(self, should_stop: Callable[[], bool]) -> None:
        """Give calls up soon after `asked` returns True: they raise `bridge.errors.GivenUpError`."""
        ...

    def beside(self) -> RefStore:
        """Return the same remote and objects for work that goes on beside this; `stop_when` is its own."""
        ...
