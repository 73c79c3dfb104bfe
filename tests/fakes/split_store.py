"""A store over two ways to one repository: what a requester does goes over ssh, what a host does goes by its path.

So one actor can play both sides of a bus whose requesters may write nothing but request branches. Both ways share the
local objects, as they lie in one folder.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from bridge.bus.store.git import GitStore
from bridge.bus.store.interface import Listing, Reader, RefAnswer, RefStore, RefUpdate
from bridge.system.gitobjects import Committer, GitObject

REQUESTS = "refs/heads/"


class SplitStore:
    """Implements `bridge.bus.store.interface.RefStore`."""

    def __init__(self, requester: GitStore, host: GitStore) -> None:
        self._requester, self._host = requester, host

    @property
    def route(self) -> str:
        return self._requester.route

    @property
    def committer(self) -> Committer:
        return self._host.committer

    def list(
        self, prefixes: Sequence[str], *, bring: Sequence[str] = (), max_bytes: int = 0, newest_only: bool = False
    ) -> Listing:
        return self._requester.list(prefixes, bring=bring, max_bytes=max_bytes, newest_only=newest_only)

    def mark(self, prefixes: Sequence[str]) -> Hashable:
        return self._host.mark(prefixes)

    def push(self, updates: Sequence[RefUpdate], *, atomic: bool = False) -> Mapping[str, RefAnswer]:
        answers: dict[str, RefAnswer] = {}
        for store, mine in ((self._host, False), (self._requester, True)):
            part = [update for update in updates if update.ref.startswith(REQUESTS) is mine]
            if part:
                answers |= store.push(part, atomic=atomic)
        return answers

    def pause(self, tries: int) -> bool:
        return self._requester.pause(tries)

    def write(self, objects: Iterable[GitObject], *, durable: bool = False) -> None:
        self._requester.write(objects, durable=durable)

    def keep(self, name: str, oid: str | None) -> None:
        self._requester.keep(name, oid)

    def tend(self) -> None:
        self._requester.tend()

    def tend_apart(self) -> None:
        self._requester.tend_apart()

    def obtain(self, refs: Mapping[str, str], *, max_bytes: int) -> None:
        self._requester.obtain(refs, max_bytes=max_bytes)

    def reader(self) -> AbstractContextManager[Reader]:
        return self._requester.reader()

    def isolate(self, name: str, oids: Sequence[str], **bounds: int) -> RefStore:
        return self._requester.isolate(name, oids, **bounds)

    def drop(self, name: str) -> None:
        self._requester.drop(name)

    def stop_when(self, should_stop: Callable[[], bool]) -> None:
        self._requester.stop_when(should_stop)
        self._host.stop_when(should_stop)

    def beside(self) -> SplitStore:
        return SplitStore(self._requester.beside(), self._host.beside())
