"""A bus in memory: the production protocol over a simulated remote that can lose, repeat and delay.

`MemoryBus()` is a bus of its own; several over one `MemoryRemote` share it, each like a host or a client of its own
with its own local objects. Passes the same conformance suite as the git buses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from bridge.bus.refbus import RefBus
from bridge.bus.refs import names
from bridge.bus.refs.spaces import DEFAULT_PATTERNS
from bridge.bus.store.interface import (
    Listing,
    MalformedObjectError,
    MissingObjectError,
    ObjectBoundError,
    RefAnswer,
    RefUpdate,
)
from bridge.bus.store.push_budget import Pacer
from bridge.errors import RemoteError
from bridge.limits import BEACON_INTERVAL_LOCAL_S
from bridge.records.bus import BusRecord
from bridge.system.clock import Clock, SystemClock, rfc3339
from bridge.system.gitobjects import KAKEYA, SUBMODULE, GitObject, Kind, parse_commit, parse_tree

LEASE_S = 15.0  # shorter than a runner takes by itself, so that tests need not wait
ISOLATED_MAX = 64  # as many as the git store keeps
BUS_ID = "0123456789abcdef0123456789abcdef"


@dataclass
class MemoryRemote:
    """Refs and objects as a git server has them; every update is a compare-and-swap."""

    refs: dict[str, str] = field(default_factory=dict)
    objects: dict[str, GitObject] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def apply(
        self, updates: Sequence[RefUpdate], objects: Mapping[str, GitObject], *, atomic: bool = False
    ) -> dict[str, RefAnswer]:
        """Receive a push: objects first, then each ref on its own, or all of them where none is refused."""
        with self.lock:
            self.objects.update(objects)
            answers = {}
            refused = {update.ref: why for update in updates if (why := self._refusal(update))}
            if atomic and refused:
                whys = {update.ref: refused.get(update.ref, "atomic push failed") for update in updates}
                return {ref: RefAnswer(taken=False, why=why) for ref, why in whys.items()}
            for update in updates:
                why = self._refusal(update)
                answers[update.ref] = RefAnswer(not why, why)
                if answers[update.ref] and update.new is None:
                    self.refs.pop(update.ref, None)
                elif answers[update.ref] and update.new is not None:
                    self.refs[update.ref] = update.new
            return answers

    def _refusal(self, update: RefUpdate) -> str:
        """Return in git's words why an update is refused: its ref is elsewhere, or another stands in its place."""
        ref, tip = update.ref, self.refs.get(update.ref)
        if tip not in (update.expect, update.new):
            return "stale info"
        if tip is not None or update.new is None:
            return ""
        parts = ref.split("/")
        folders = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        obstacle = next((name for name in folders if name in self.refs), None)
        obstacle = obstacle or next((name for name in self.refs if name.startswith(f"{ref}/")), None)
        return f"cannot lock ref '{ref}': '{obstacle}' exists; cannot create '{ref}'" if obstacle else ""


@dataclass
class Faults:
    """What goes wrong on the way, decided per call by a function of the operation's name.

    `decide` gets ``push``, ``list`` or ``fetch`` and answers None, ``lost`` (never arrives), ``unanswered`` (arrives,
    the reply is lost), ``repeated`` (arrives twice), ``delayed`` (arrives when `flush` is called, the caller sees a
    failure) or, of a push, ``forgotten`` (acknowledged and not kept). `write` is called before objects are stored here.
    """

    decide: Callable[[str], str | None] = lambda operation: None
    write: Callable[[], object] = lambda: None
    delayed: list[Callable[[], object]] = field(default_factory=list)

    def flush(self) -> None:
        """Let everything that was delayed arrive."""
        arrivals, self.delayed = self.delayed, []
        for arrive in arrivals:
            arrive()


class MemoryStore:
    """`bridge.bus.store.interface.RefStore` in memory."""

    def __init__(self, remote: MemoryRemote, faults: Faults | None = None, parent: MemoryStore | None = None) -> None:
        self.remote = remote
        self.faults = faults or Faults()
        self.objects: dict[str, GitObject] = {}
        self.pins: dict[str, str] = {}
        self.tended: list[int] = []
        self.tidied = 0
        self._parent = parent
        self._fetched_bytes = 0
        self._isolated: dict[str, MemoryStore] = {}

    @property
    def route(self) -> str:
        return "memory:"

    committer = KAKEYA

    def list(
        self, prefixes: Sequence[str], *, bring: Sequence[str] = (), max_bytes: int = 0, newest_only: bool = False
    ) -> Listing:
        self._pass("list")
        selection = (*prefixes, *bring)
        with self.remote.lock:
            refs = {ref: oid for ref, oid in sorted(self.remote.refs.items()) if ref.startswith(selection)}
        with suppress(MissingObjectError, ObjectBoundError):
            for ref in bring:
                if ref in refs and self._get(refs[ref]) is None:
                    self._fetch(refs[ref], history=not newest_only, max_bytes=max_bytes)
        return Listing(refs, sum(len(ref) + 46 for ref in refs))

    def mark(self, prefixes: Sequence[str]) -> None:
        """Only a listing tells."""

    def push(self, updates: Sequence[RefUpdate], *, atomic: bool = False) -> Mapping[str, RefAnswer]:
        objects: dict[str, GitObject] = {}
        for update in updates:
            if update.new is not None:
                self._reach(update.new, objects, stop=self.remote.objects)
        fate = self.faults.decide("push")
        if fate == "lost":
            raise RemoteError("memory: the push was lost")
        if fate == "delayed":
            self.faults.delayed.append(lambda: self.remote.apply(updates, objects, atomic=atomic))
            raise RemoteError("memory: no answer yet")
        if fate == "forgotten":
            return {update.ref: RefAnswer(taken=True) for update in updates}
        answers = self.remote.apply(updates, objects, atomic=atomic)
        if fate == "repeated":
            self.remote.apply(updates, objects, atomic=atomic)
        if fate == "unanswered":
            raise RemoteError("memory: the reply was lost")
        return answers

    def write(self, objects: Iterable[GitObject], *, durable: bool = False) -> None:
        self.faults.write()
        self.objects.update((git_object.oid, git_object) for git_object in objects)

    def pause(self, tries: int) -> bool:
        """What was lost here stays lost: the caller's own next step is the next try."""
        return False

    def keep(self, name: str, oid: str | None) -> None:
        """Nothing is ever pruned, but what is kept is known."""
        self.pins = {**self.pins, name: oid} if oid else {other: at for other, at in self.pins.items() if other != name}

    def tend(self) -> None:
        """Nothing is ever too much, but how often somebody looked is known."""
        self.tidied += 1

    def tend_apart(self) -> None:
        """Nothing is ever too much, but what was pushed by the time of each call is known."""
        self.tended.append(len(self.remote.refs))

    def obtain(self, refs: Mapping[str, str], *, max_bytes: int) -> None:
        if all(self._get(oid) is not None for oid in refs.values()):
            return
        self._pass("fetch")
        for oid in refs.values():
            self._fetch(oid, history=True, max_bytes=max_bytes)

    @contextmanager
    def reader(self) -> Iterator[MemoryStore]:
        yield self

    def read(self, oid: str, kind: Kind, max_bytes: int) -> bytes:
        git_object = self._get(oid)
        if git_object is None:
            raise MissingObjectError(f"{oid[:12]} is not here")
        if git_object.kind != kind:
            raise MalformedObjectError(f"{oid[:12]} is a {git_object.kind}; expected a {kind}")
        if len(git_object.data) > max_bytes:
            raise ObjectBoundError(f"{oid[:12]} has {len(git_object.data)} bytes, at most {max_bytes}")
        return git_object.data

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
    ) -> MemoryStore:
        while name not in self._isolated and len(self._isolated) >= ISOLATED_MAX:
            self._isolated.pop(next(iter(self._isolated)))
        store = self._isolated.setdefault(name, MemoryStore(self.remote, self.faults, self if borrows else None))
        if commits > 1 or not all(store._get(oid) for oid in oids):
            self._pass("fetch")
            for oid in oids:
                store._fetch(oid, history=commits > 1, max_bytes=max_bytes)
        return store

    def drop(self, name: str) -> None:
        self._isolated.pop(name, None)

    def stop_when(self, should_stop: Callable[[], bool]) -> None:
        """No call takes time."""

    def beside(self) -> MemoryStore:
        return self

    def _pass(self, operation: str) -> None:
        fate = self.faults.decide(operation)
        if fate in ("lost", "unanswered", "delayed"):
            raise RemoteError(f"memory: the {operation} was lost")

    def _get(self, oid: str) -> GitObject | None:
        own = self.objects.get(oid)
        return own if own is not None or self._parent is None else self._parent._get(oid)

    def _fetch(self, oid: str, *, history: bool, max_bytes: int) -> None:
        with self.remote.lock:
            if oid not in self.remote.objects:
                raise MissingObjectError(f"the remote does not give {oid[:12]}")
            fetched: dict[str, GitObject] = {}
            _walk(oid, self.remote.objects.get, fetched, stop=self.objects, history=history)
        fetched_bytes = sum(len(git_object.data) for git_object in fetched.values())
        if fetched_bytes + (self._fetched_bytes if self._parent else 0) > max_bytes:
            raise ObjectBoundError(f"more than {max_bytes} bytes")
        self._fetched_bytes += fetched_bytes
        self.objects.update(fetched)

    def _reach(self, oid: str, into: dict[str, GitObject], *, stop: Mapping[str, GitObject]) -> None:
        _walk(oid, self._get, into, stop=stop, history=True)


def _walk(
    oid: str,
    get: Callable[[str], GitObject | None],
    into: dict[str, GitObject],
    *,
    stop: Mapping[str, GitObject],
    history: bool,
) -> None:
    todo = [oid]
    while todo:
        at = todo.pop()
        if at in into or at in stop:
            continue
        git_object = get(at)
        if git_object is None:
            raise MissingObjectError(f"memory: object {at[:12]} is missing")
        into[at] = git_object
        if git_object.kind == "commit":
            head = parse_commit(git_object.data)
            todo.extend((head.tree, *(head.parents if history else ())))
        elif git_object.kind == "tree":
            todo.extend(entry.oid for entry in parse_tree(git_object.data) if entry.mode != SUBMODULE)


class MemoryBus(RefBus):
    """A bus in memory; without a remote it is created with a record of its own."""

    def __init__(
        self,
        remote: MemoryRemote | None = None,
        *,
        clock: Clock | None = None,
        faults: Faults | None = None,
        expect_id: str | None = None,
        record: BusRecord | None = None,
    ) -> None:
        now = clock or SystemClock()
        self.remote = remote if remote is not None else MemoryRemote()
        self.store = MemoryStore(self.remote, faults)
        super().__init__(self.store, clock=now, pacer=Pacer(None, 60.0, now), expect_id=expect_id)
        if remote is None:
            self.create(record or bus_record(now))


def bus_record(clock: Clock, **changes: object) -> BusRecord:
    """Return a bus record for tests; quick times."""
    fields: dict[str, object] = {
        "bus_id": BUS_ID,
        "wake": "poll",
        "request_form": "manifest",
        "request_branches": DEFAULT_PATTERNS,
        "prefix": names.DEFAULT_PREFIX,
        "attestation": "none",
        "lease_s": LEASE_S,
        "beacon_interval_s": BEACON_INTERVAL_LOCAL_S,
        "minimum_client": "0.1.0",
        "created": rfc3339(clock.now()),
    }
    return BusRecord.model_validate({**fields, **changes})


__all__ = ["BUS_ID", "Faults", "MemoryBus", "MemoryRemote", "MemoryStore", "bus_record"]
