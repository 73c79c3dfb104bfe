"""`bridge.bus.store.interface.RefStore` with git: any remote git can push to.

All work happens in bare repositories of the bus's own; the user's clone is only ever read, as a second object folder.
Pushes go to the URL, so no tracking ref moves; fetches name their refs, so nothing follows. Knows nothing about the
protocol.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from bridge.bus.store.answers import read_answers
from bridge.bus.store.interface import (
    Listing,
    MalformedObjectError,
    MissingObjectError,
    ObjectBoundError,
    Reader,
    RefAnswer,
    RefUpdate,
)
from bridge.bus.store.listing import parse_ls_remote, parse_trace
from bridge.bus.store.route import Route, promisor_of
from bridge.bus.store.tries import PAUSES_S, Tries
from bridge.bus.store.upkeep import FETCHED, KEPT, is_half_pruned, recover, tend, tend_apart
from bridge.bus.store.user_clone import UserClone
from bridge.errors import GivenUpError, InfrastructureError, RemoteError
from bridge.limits import GIT_WALL_S, MIB, STOP_PUSH_S, TRANSFER_WALL_S
from bridge.system.clock import SystemClock
from bridge.system.durable import in_turn, write_atomically
from bridge.system.git import CallStop, Finished, StopSignal
from bridge.system.gitobjects import KAKEYA, Committer, GitObject, Kind
from bridge.system.gitreader import GitObjectKindError, GitObjectMissingError, GitObjectTooLargeError, ObjectReader
from bridge.system.gitrepository import BareRepository, GitSettings

# Seldom --atomic: git leaves unchanged refs out of an atomic push, so an unchanged claim would fence nothing.
_PUSH: Final = (
    "push", "--porcelain", "--progress", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed",
    "--no-thin",
)  # fmt: skip
_NO_ATOMIC: Final = "does not support --atomic"
_SHALLOW_TREES: Final = "--filter=combine:tree:3+blob:limit=64k"  # a request lies in a folder of the tree
_UNCHECKED: Final = ("-c", "fetch.fsckObjects=false")
_FETCH: Final = ("fetch", "--progress", "--no-write-fetch-head", "--no-auto-maintenance", "--no-tags")
_ABSENT = re.compile(r"couldn't find remote ref|not our ref|no such (remote )?ref|unadvertised object", re.IGNORECASE)
# The remote's own git failed on an object that it has lost: another object may still be had.
_LOST = re.compile(
    r"possible repository corruption|pack-objects died|bad object|missing (tree|blob|commit)", re.IGNORECASE
)
_MALFORMED = re.compile(r"error in (tree|commit|blob|tag|object) [0-9a-f]{40}|fsck error|invalid object", re.IGNORECASE)
_ISOLATED_MAX: Final = 64
_LISTING_MAX_BYTES: Final = 256 * MIB  # of git's trace of one, five times what a bus of 100,000 ended runs takes
_UNASKED_S: Final = 3600.0  # so long a remote that sends all of its refs is not asked for some of them again
_CLOCK: Final = SystemClock()
NEAR_TRIP_S: Final = 0.2  # what forwards to another machine adds the way there
_NAME = re.compile(r"[a-z0-9-]{1,64}")


class GitStore:
    """A remote, through git.

    Args:
        route: where it is.
        state: a folder of our own for repositories.
        clone: the user's clone, or None.
        folder: the repository, when it is not the bus's main one.
        wall_s: how long one git call may make no progress.
        borrows: whether a repository that is not the main one reads the main one's objects as well.
        pauses_s: before each further try of what may pass; a server that asks for more gets it.
        committer: who makes the commits of this side.
    """

    def __init__(
        self,
        route: Route,
        state: Path,
        clone: UserClone | None = None,
        *,
        folder: Path | None = None,
        wall_s: float = GIT_WALL_S,
        borrows: bool = True,
        pauses_s: Sequence[float] = PAUSES_S,
        committer: Committer = KAKEYA,
    ) -> None:
        self.committer = committer
        self._wall_s = wall_s
        self._tries = Tries(route, state, pauses_s)
        self._route = route
        self._state = state
        self._clone = clone
        alternates = [] if clone is None else [clone.objects]
        if folder is not None and borrows:
            alternates.insert(0, state / "control.git" / "objects")
        self._repository = BareRepository(
            folder or state / "control.git",
            GitSettings(
                config=route.config, alternates=tuple(alternates), environment=_ssh(route) | _trusting(route, state)
            ),
        )
        self._repository.create()
        recover(self._repository)
        self._stop_signal: StopSignal | None = None
        self._unasked_until_s = float("-inf")
        self._quickest_s = float("inf")
        self._pushes_singly = self._lacks_atomic = False

    @property
    def route(self) -> str:
        """Where the remote is, as others reach it; see the interface."""
        return self._route.told

    def list(
        self, prefixes: Sequence[str], *, bring: Sequence[str] = (), max_bytes: int = 0, newest_only: bool = False
    ) -> Listing:
        """Return every ref that starts with one of the prefixes, asking the remote for no more than those.

        `git ls-remote` requests all refs. A fetch with a refspec for each prefix and a negative one for all refs sends
        them as ref-prefix arguments of ls-refs (gitprotocol-v2(5)) and fetches nothing; the reply is read from git's
        packet trace. Where the trace holds no reply (protocol v0), ls-remote is used, for an hour without trying again.
        """
        began_s = _CLOCK.steady_s()
        listing = None
        if began_s >= self._unasked_until_s:
            listing = self._list_by_prefix(prefixes, bring, max_bytes, newest_only=newest_only)
        if listing is None:
            finished = self._run(["ls-remote", "--quiet", self._route.url])
            if finished.exit_code != 0:
                raise _explain(finished, f"cannot list {self.route}", self.route)
            listing = replace(parse_ls_remote(finished.stdout), unasked=True)
            self._unasked_until_s = max(self._unasked_until_s, _CLOCK.steady_s() + _UNASKED_S)
        self._quickest_s = min(self._quickest_s, _CLOCK.steady_s() - began_s)
        meant = (*prefixes, *bring)
        return replace(listing, refs={ref: oid for ref, oid in listing.refs.items() if ref.startswith(meant)})

    def is_near(self) -> bool:
        """Return whether what answers on this machine is this machine: a listing came as quickly as from no other."""
        return self._route.is_loopback and self._quickest_s < NEAR_TRIP_S

    def mark(self, prefixes: Sequence[str]) -> Hashable:
        """Return when the folders of such refs were last written to, where the remote is a folder of this machine."""
        folder = self._route.folder
        if folder is None:
            return None
        places = {prefix.rpartition("/")[0] for prefix in prefixes}
        return tuple(_written_ns(folder / place) for place in ("packed-refs", "reftable", *sorted(places)))

    def push(self, updates: Sequence[RefUpdate], *, atomic: bool = False) -> Mapping[str, RefAnswer]:
        """Send updates, each its own compare-and-swap; see the interface.

        Where a host that takes one ref a push refused several, each goes on its own from then on.
        """
        if len(updates) == 1:
            return self._push(updates)
        if not self._pushes_singly:
            try:
                return self._push(updates, atomic=atomic)
            except RemoteError as error:
                from bridge.system.remote_words import Cause

                if not Cause(error.cause or Cause.UNKNOWN).is_refusal:
                    raise
        answers = dict(self._push(updates[:1]))  # in this order: the first is what the others go along with
        self._pushes_singly = True
        for update in updates[1:]:
            try:
                answers |= self._push([update])
            except RemoteError as error:
                answers[update.ref] = RefAnswer(taken=False, why=error.message)
        return answers

    def _push(self, updates: Sequence[RefUpdate], *, atomic: bool = False) -> Mapping[str, RefAnswer]:
        """Send updates in one push.

        Raises:
            RemoteError: what answers there says of no ref what became of it.
        """
        leases = [f"--force-with-lease={update.ref}:{update.expect or ''}" for update in updates]
        specs = [f"{update.new or ''}:{update.ref}" for update in updates]
        environment = {}
        if self._clone is not None and self._clone.shallow.exists():
            environment["GIT_SHALLOW_FILE"] = str(self._clone.shallow)
        # What a partial clone left out, the remote of the bus may lack: git fetches it here from where the clone came.
        lazily = promisor_of(self._clone.top) if self._clone is not None and self._clone.is_partial else ()
        together = ("--atomic",) if atomic and not self._lacks_atomic else ()
        finished = self._run([*_PUSH, *together, *leases, self._route.url, *specs], environment, config=lazily)
        answers = read_answers(finished.stdout.decode("utf-8", "replace"), finished.stderr)
        if together and _NO_ATOMIC in finished.stderr:
            self._lacks_atomic = True
            return self._push(updates)
        if not answers:
            raise _explain(finished, f"cannot push to {self.route}", self.route, is_push=True)
        for update in updates:  # what was pushed stays here as long as what was fetched
            if answers.get(update.ref):
                self._repository.set_ref(_fetched(update.ref), update.new, durable=False)
        return answers

    def pause(self, tries: int) -> bool:
        """Wait before one more try of a push that failed and may pass; see the interface."""
        return self._tries.pause(tries, self._stop(0.0))

    def write(self, objects: Iterable[GitObject], *, durable: bool = False) -> None:
        """Store objects in the local repository."""
        self._repository.write(objects, durable=durable)

    def keep(self, name: str, oid: str | None) -> None:
        """Keep an object that is here until the same name keeps another one or none; see the interface."""
        self._repository.set_ref(f"{KEPT}/{name}", oid, durable=True)

    def tend(self) -> None:
        """Pack what is many, and delete what was fetched or pushed long ago; see the interface."""
        tend(self._repository, self._stop(0.0))

    def tend_apart(self) -> None:
        """Have a process of its own do what `tend` does; see the interface."""
        self._repository.close()  # a program that goes on, as one that serves tools does, opens the bus for each call
        with suppress(InfrastructureError, OSError):  # a full disk, or a clone that only its owner may write
            tend_apart(self._repository, () if self._clone is None else (self._clone.objects,))

    def obtain(self, refs: Mapping[str, str], *, max_bytes: int) -> None:
        """Make tips, with all that they reach, readable here; see the interface."""
        missing = dict(refs) if is_half_pruned(self._repository) else self._missing(refs)
        if not missing:
            return
        specs = [f"+{ref}:{_fetched(ref)}" if ref else oid for ref, oid in missing.items()]
        finished = self._fetch(specs, max_bytes)
        left = self._missing(missing)
        if left and finished.exit_code != 0 and not _ABSENT.search(finished.stderr):
            raise _fetch_error(finished, self.route, self.route)
        for ref, oid in left.items():  # the ref moved on since it was listed, to something that does not contain it
            finished = self._fetch([oid], max_bytes)
            if finished.exit_code != 0:
                raise _fetch_error(finished, f"{self.route} {ref}", self.route)

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """Open the local objects for reading."""
        with self._repository.reader() as reader:
            yield StoreReader(reader)

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
    ) -> GitStore:
        """Return a store of its own holding these untrusted commits, no more history than asked; see the interface."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for an isolated store")
        folder = self._state / "isolated" / f"{name}.git"
        if not folder.exists():
            _make_room(folder.parent)
        store = GitStore(
            self._route,
            self._state,
            self._clone if borrows else None,
            folder=folder,
            wall_s=self._wall_s,
            borrows=borrows,
            pauses_s=self._tries.pauses_s,
            committer=self.committer,
        )
        store._stop_signal = self._stop_signal
        tips = {oid: oid for oid in oids}
        sure = commits == 1 and not (borrows and is_half_pruned(self._repository))
        # git refuses to fetch some history where another fetch of this folder holds its lock
        with in_turn(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), self._wall_s, _CLOCK):
            _unlock(folder, self._wall_s)
            missing = store._missing(tips) if sure else tips
            if missing:
                options = [f"--depth={commits}", *((_SHALLOW_TREES,) if shallow_trees else ())]
                finished = store._fetch([*options, *missing], max_bytes, checked=checked, patient=patient)
                if shallow_trees:
                    store._repository.restore_config()
                # What was not checked may be all here although git could not walk it, so its reader decides; of what
                # breaks the bound, the commits may be here and what they lead to is not.
                broken = checked or finished.hit_file_bound
                if finished.exit_code != 0 and (broken or store._missing(tips)):
                    raise _fetch_error(finished, self.route, self.route)
        return store

    def stop_when(self, should_stop: Callable[[], bool]) -> None:
        """Give calls up soon after the program is asked to end; see the interface."""
        self._stop_signal = StopSignal(should_stop)

    def beside(self) -> GitStore:
        """Return the same store for other work, with a `stop_when` of its own; see the interface."""
        store = GitStore(
            self._route,
            self._state,
            self._clone,
            wall_s=self._wall_s,
            pauses_s=self._tries.pauses_s,
            committer=self.committer,
        )
        store._unasked_until_s = self._unasked_until_s
        return store

    def _stop(self, grace_s: float) -> CallStop | None:
        return None if self._stop_signal is None else CallStop(self._stop_signal, grace_s)

    def drop(self, name: str) -> None:
        """Delete an isolated store, if there is one."""
        shutil.rmtree(self._state / "isolated" / f"{name}.git", ignore_errors=True)

    def _list_by_prefix(
        self, prefixes: Sequence[str], bring: Sequence[str], max_bytes: int, *, newest_only: bool = False
    ) -> Listing | None:
        descriptor, name = tempfile.mkstemp(prefix="listing-", dir=self._state)
        os.close(descriptor)
        trace = Path(name)
        try:
            specs, options = [f"{prefix}*:refs/none/{number}/*" for number, prefix in enumerate(prefixes)], []
            if bring and newest_only:
                # Nobody can guess how a ref must end to be fetched by its prefix, so that what is named is all that is.
                specs = [spec.replace("*", f"*/{secrets.token_hex(8)}", 1) for spec in specs]
                specs += [f"+{ref}:{_fetched(ref)}" for ref in bring]
                options = ["--depth=1"]
                _unlock(self._repository.path, self._wall_s)
            elif bring:
                # As patterns, because git brings nothing at all where a ref of a full name is not there.
                specs += [f"+{ref}*:{_fetched(ref)}*" for ref in bring] + [f"^{prefix}*" for prefix in prefixes]
            else:
                specs.append("^refs/*")
            unchecked = _UNCHECKED if newest_only else ()
            call, traced = [*unchecked, *_FETCH, *options, self._route.url, *specs], {"GIT_TRACE_PACKET": name}
            finished = self._run(call, traced, max_file_bytes=max_bytes or _LISTING_MAX_BYTES)
            listing = parse_trace(trace.read_bytes())
        finally:
            trace.unlink(missing_ok=True)
        if listing is None and finished.hit_file_bound and bring:
            return self._list_by_prefix([*prefixes, *bring], (), 0)
        if listing is None and finished.hit_file_bound:
            what = f"cannot list {self.route}: it sends refs without end"
            raise RemoteError(what, remedy=f"look at what answers there: git ls-remote {shlex.quote(self.route)}")
        if finished.timed_out or (finished.exit_code != 0 and listing is None):
            raise _explain(finished, f"cannot list {self.route}", self.route)
        return listing

    def _missing(self, refs: Mapping[str, str]) -> dict[str, str]:
        with self._repository.reader() as reader:
            return {ref: oid for ref, oid in refs.items() if not reader.has(oid)}

    def _fetch(
        self, arguments: Sequence[str], max_bytes: int, *, checked: bool = True, patient: bool = True
    ) -> Finished:  # fmt: skip
        options = [argument for argument in arguments if argument.startswith("--")]
        specs = [argument for argument in arguments if not argument.startswith("--")]
        unchecked = () if checked else _UNCHECKED
        call = [*unchecked, *_FETCH, *options, self._route.url, *specs]
        return self._run(call, max_file_bytes=max_bytes, timeout_s=TRANSFER_WALL_S if patient else self._wall_s)

    def _run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        max_file_bytes: int | None = None,
        timeout_s: float = TRANSFER_WALL_S,
        config: tuple[tuple[str, str], ...] = (),
    ) -> Finished:
        """Run git on the remote, no longer than that and than it makes progress; what may pass is tried again.

        Raises:
            GivenUpError: this program is asked to end, and the remote had not answered.
            RemoteError: the server asks to be left alone for long, or what answers is a page for people.
        """
        is_push = arguments[0] == "push"
        stop = self._stop(STOP_PUSH_S if is_push else 0.0)

        def call(variables: Mapping[str, str]) -> Finished:
            if stop is None or not stop.is_due():
                finished = self._repository.run(
                    arguments,
                    timeout_s=timeout_s,
                    environment={**variables, **(environment or {})},
                    max_file_bytes=max_file_bytes,
                    stop=stop,
                    quiet_s=self._wall_s,
                    config=config,
                )
                if stop is None or not (finished.timed_out and stop.is_due()):
                    return finished
            raise GivenUpError(f"{self.route}: given up, as this program is asked to end")

        return self._tries.run(call, stop, repeats=not is_push)


class StoreReader:
    """A repository's reader with the store's errors."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader

    def read(self, oid: str, kind: Kind, max_bytes: int) -> bytes:
        """Return an object's content; see `bridge.bus.store.interface.Reader`."""
        try:
            return self._reader.read(oid, kind, max_bytes)
        except GitObjectMissingError as error:
            raise MissingObjectError(error.message) from error
        except GitObjectKindError as error:
            raise MalformedObjectError(error.message) from error
        except GitObjectTooLargeError as error:
            raise ObjectBoundError(error.message) from error


def _make_room(folder: Path) -> None:
    """Delete the oldest isolated stores when there are many; what is needed again is fetched again."""
    if not folder.is_dir():
        return
    aged: list[tuple[float, Path]] = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # a command beside this one has just dropped its own
            aged.append((path.stat().st_mtime, path))
    for _, path in sorted(aged)[: max(0, len(aged) - _ISOLATED_MAX + 1)]:
        shutil.rmtree(path, ignore_errors=True)


def _unlock(folder: Path, wall_s: float) -> None:
    """Delete the lock that a fetch of some history left when it was killed, as one that is silent for so long is.

    One that goes on after its runner was killed fetches the same commits.
    """
    lock = folder / "shallow.lock"
    with suppress(OSError):
        if _CLOCK.now().timestamp() - lock.stat().st_mtime > wall_s:
            lock.unlink()


def _ssh(route: Route) -> dict[str, str]:
    """Never prompt over ssh; a command of the user's own is left as it is."""
    chosen = {"GIT_SSH_COMMAND", "GIT_SSH"} & os.environ.keys()
    configured = any(key.lower() == "core.sshcommand" for key, _ in route.config)
    return {} if chosen or configured else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=15"}


def _trusting(route: Route, state: Path) -> dict[str, str]:
    """Let the git of a local remote read what the user's own git reads, by a file: it takes over no other setting."""
    if not route.trusted:
        return {}
    escaped = (folder.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for folder in route.trusted)
    text = "[safe]\n" + "".join(f'directory = "{folder}"\n' for folder in escaped)
    path = state / "trusted.gitconfig"
    if not path.exists() or path.read_text("utf-8") != text:
        write_atomically(path, text.encode(), durable=False)
    return {"GIT_CONFIG_GLOBAL": str(path)}


def _written_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _fetched(ref: str) -> str:
    """Return the local ref under which a fetched tip is kept, so that later fetches send only what is new."""
    return f"{FETCHED}/{hashlib.sha256(ref.encode()).hexdigest()[:24]}"


def _explain(finished: Finished, what: str, route: str = "ROUTE", *, is_push: bool = False) -> RemoteError:
    """Return the error of a call that failed; what reads its words is loaded only then."""
    from bridge.system import remote_words

    return remote_words.explain(finished, what, route, is_push=is_push)


def _fetch_error(finished: Finished, what: str, route: str) -> InfrastructureError:
    if finished.hit_file_bound:
        return ObjectBoundError(f"{what}: more would be received than the bound allows")
    if _MALFORMED.search(finished.stderr):
        return MalformedObjectError(_explain(finished, f"{what} gave a malformed object").message)
    if _ABSENT.search(finished.stderr) or _LOST.search(finished.stderr):
        return MissingObjectError(f"{what}: {_explain(finished, 'not there any more').message}")
    return _explain(finished, f"cannot fetch from {what}", route)
