"""Request and cancel branches over a store, and the copy of a result on its request branch.

The requester creates branches and never overwrites one; what is read back is untrusted and stays in a store of its own.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bridge.bus.content import commits
from bridge.bus.store.gather import Gatherer, Tip, WorkBudget, from_both_ends
from bridge.bus.store.interface import MalformedObjectError, MissingObjectError, Reader, RefStore, RefUpdate
from bridge.bus.store.swap import swap, tips_of
from bridge.bus.views import ReadRequests, ReceivedRequest, RequestRef, Submission
from bridge.errors import BusError, FencedError, ObjectError, RemoteError, RequestRejectedError
from bridge.limits import HISTORY_MAX_COMMITS, MIB, TREE_MAX_BYTES
from bridge.records.request import Request
from bridge.request import cancel_branch
from bridge.system.clock import parse_rfc3339
from bridge.system.gitobjects import DIRECTORY, GitObject, TreeEntry, commit, parse_tree, tree

if TYPE_CHECKING:
    from bridge.bus.store.quarantine import Quarantine
    from bridge.records.claim import Delivery
    from bridge.records.request import Workload

TOP_TREE_MAX_BYTES: Final = MIB
BATCH_MAX_BYTES: Final = 64 * MIB
PEEK_MAX_BYTES: Final = MIB
_WHICH_FETCHES: Final = 4  # of branches that have one run id


class Requests:
    """Requests of one bus."""

    def __init__(self, store: RefStore, quarantine: Quarantine) -> None:
        self._store, self._quarantine = store, quarantine
        self._waiting = Gatherer(
            store, quarantine, "request", batch_max_bytes=BATCH_MAX_BYTES, one_max_bytes=TREE_MAX_BYTES
        )

    def submit(
        self,
        data: bytes,
        ref: RequestRef,
        workload: Workload | None,
        signature: bytes | None,
        *,
        first: bool = False,
        starts_ci: bool = False,
    ) -> Submission:
        """Create a request branch; `ref.oid` is ignored. What is sent for the first time is not looked for first.

        Its tree may hold CI files of the workload, which are left alone but where they wake the bus: `starts_ci`.

        Raises:
            FencedError: the branch exists with something else on it.
            BusError: the workload's objects cannot be read here.
        """
        files = _signed(commits.REQUEST_FILE, data, signature)
        over: tuple[TreeEntry, ...] = ()
        parents: tuple[str, ...] = ()
        if workload is not None:
            parents = (workload.commit,)
            with self._store.reader() as reader:
                over = parse_tree(reader.read(workload.tree, "tree", TOP_TREE_MAX_BYTES))
        made, objects = commits.folder_commit(
            files,
            over=over,
            parents=parents,
            time_unix_s=_created(data),
            message=f"request {ref.id}{'' if starts_ci else ' [skip ci]'}",
            by=self._store.committer,
        )
        self._store.write(objects)
        pushed = RequestRef(ref.id, ref.ref, made.oid)
        tip = None if first else tips_of(self._store, [ref.ref]).get(ref.ref)
        if tip is None:
            outcome = swap(self._store, [RefUpdate(ref.ref, made.oid, None)], authority=ref.ref)[ref.ref]
            if outcome.landed:
                return Submission(pushed, reattached=False)
            tip = outcome.tip
        if tip == made.oid or (tip is not None and self._is_copy(pushed, tip)):
            return Submission(pushed, reattached=True)
        raise FencedError(f"{ref.ref} exists with another commit, {tip}; a request branch is never overwritten")

    def read(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes of one branch; what it brings is kept for `workload`.

        Raises:
            RequestRejectedError: no request, or too large.
            FencedError: the branch already carries a result.
        """
        reason = self._quarantine.reason("request", ref.oid)
        if reason is not None:
            raise RequestRejectedError(reason)
        store = self._isolated(ref)
        try:
            with self._quarantine.reading("request", ref.ref, ref.oid), store.reader() as reader:
                return _received(reader, ref)
        except FencedError:
            raise
        except BusError as error:
            raise RequestRejectedError(error.message) from error

    def peek(self, ref: RequestRef) -> ReceivedRequest:
        """Return the pushed bytes of one branch without what lies deeper or is large beside them; nothing is kept.

        Where the remote does not leave that out, a branch that is larger than a request is not read.

        Raises:
            RequestRejectedError: no request, or too large.
            FencedError: the branch already carries a result.
        """
        name = f"peek-{secrets.token_hex(4)}"  # several commands of a clone may look at once
        try:
            store = self._store.isolate(name, [ref.oid], max_bytes=PEEK_MAX_BYTES, checked=False, shallow_trees=True)
            with store.reader() as reader:
                return _received(reader, ref)
        except FencedError:
            raise
        except BusError as error:
            raise RequestRejectedError(error.message) from error
        finally:
            self._store.drop(name)

    def which(self, refs: Sequence[RequestRef], bus_id: str, claimed: str | None) -> RequestRef:
        """Return which of several branches with one run id is the run's: the one that the claimed request names.

        Else it is the one a runner would take, as far as somebody can tell who does not know its keys: a signed
        request, else a request, the first by name.

        Args:
            refs: the branches; at least one.
            bus_id: of the bus they are on.
            claimed: the commit that the run's claim names, None without a claim.

        Raises:
            RemoteError: the remote did not answer.
        """
        if claimed is not None:
            with suppress(FencedError, RequestRejectedError):
                named = _asked(self.read(RequestRef(refs[0].id, refs[0].ref, claimed)).data)
                if (
                    match := next((each for each in refs if named is not None and each.ref == named.ref), None)
                ) is not None:
                    return match
        ranks: dict[str, tuple[bool, bool, bool, str]] = {}

        def read(reader: Reader, tip: Tip) -> None:
            folder = commits.read_folder(reader, commits.read_commit(reader, tip.oid), TOP_TREE_MAX_BYTES)
            data, signature = commits.read_signed(reader, folder, commits.REQUEST_FILE)
            request = _asked(data or b"")
            is_one = request is not None and (request.ref, request.bus_id) == (tip.ref, bus_id)
            ranks[tip.ref] = (tip.oid != claimed, not is_one, signature is None, tip.ref)

        ordered = sorted(refs, key=lambda each: (each.oid != claimed, each.ref))
        self._waiting.gather([Tip(each.ref, each.oid) for each in ordered], WorkBudget(_WHICH_FETCHES), read)
        return min(ordered, key=lambda each: ranks.get(each.ref, (each.oid != claimed, True, True, each.ref)))

    def read_many(self, refs: Sequence[RequestRef], budget: WorkBudget) -> ReadRequests:
        """Return what is pushed at many branches, oldest and newest in turn as far as the budget goes.

        Raises:
            RemoteError: the remote did not answer.
        """
        received: dict[str, ReceivedRequest] = {}
        done: set[str] = set()
        by_tip = {Tip(ref.ref, ref.oid): ref for ref in refs}

        def read(reader: Reader, tip: Tip) -> None:
            try:
                received[tip.oid] = _received(reader, by_tip[tip])
            except FencedError:
                done.add(tip.oid)

        self._waiting.gather(from_both_ends(list(by_tip)), budget, read)
        rejected = {tip.oid: why for tip in by_tip if (why := self._quarantine.reason("request", tip.oid)) is not None}
        return ReadRequests(received, rejected, frozenset(done))

    def workload(self, ref: RequestRef, tree_oid: str) -> tuple[RefStore, str]:
        """Return the store and the tree that a request brought, `.mac-bridge` taken out.

        Raises:
            RequestRejectedError: the pushed tree is not the one the request names.
        """
        store = self._isolated(ref)
        try:
            with store.reader() as reader:
                bare = _workload_tree(reader, ref.oid)
        except BusError as error:
            raise RequestRejectedError(f"{ref.ref}: {error.message}") from error
        if bare.oid != tree_oid:
            raise RequestRejectedError(f"{ref.ref} brings tree {bare.oid}, its request names {tree_oid}")
        store.write([bare])
        return store, bare.oid

    def base(self, ref: RequestRef, commit_oid: str) -> tuple[RefStore, str]:
        """Return a store with, and the tree of, a commit of the history a request brought, `.mac-bridge` taken out.

        Raises:
            RequestRejectedError: the commit is not in that history: what was not pushed is not compared with.
        """
        from bridge.bus.refs.history import reaches

        name = f"base commit {commit_oid[:12]}"
        try:
            store = self._store.isolate(
                base_name(ref.id), [ref.oid], max_bytes=TREE_MAX_BYTES, commits=HISTORY_MAX_COMMITS
            )
            with store.reader() as reader:
                if not reaches(reader, ref.oid, commit_oid, HISTORY_MAX_COMMITS):
                    raise RequestRejectedError(
                        f"{name} is not in the history that was pushed to {ref.ref}",
                        remedy="name a commit that the sent one descends from: git merge-base BASE HEAD",
                    )
                bare = _workload_tree(reader, commit_oid)
        except BusError as error:
            raise RequestRejectedError(f"{name} cannot be read: {error.message}") from error
        store.write([bare])
        return store, bare.oid

    def cancel(self, run_id: str, ref: str, data: bytes, signature: bytes | None, time_unix_s: int) -> None:
        """Create a cancel branch of a request branch; an unsigned one that exists already has the same effect."""
        branch = cancel_branch(ref, commits.mark_of(signature))
        made, objects = commits.folder_commit(
            _signed(commits.CANCEL_FILE, data, signature),
            over=(),
            parents=(),
            time_unix_s=time_unix_s,
            message=f"cancel {run_id}",
            by=self._store.committer,
        )
        self._store.write(objects)
        swap(self._store, [RefUpdate(branch, made.oid, None)], authority=branch)

    def copy_result(self, ref: RequestRef, result_oid: str) -> Delivery:
        """Append a result to its request branch if the branch is where the request was.

        Nothing is appended to a commit that is too large or malformed; its result stays under the claim, like that of
        a branch that moved.

        Raises:
            RemoteError: the remote did not answer; the same call may be repeated.
        """
        if self._quarantine.reason("request", ref.oid) is not None:
            return self._delivery_elsewhere(ref, "branch_moved")
        try:
            store = self._isolated(ref)
        except RequestRejectedError as error:
            if not isinstance(error.__cause__, MissingObjectError):
                return "branch_moved"
            return self._delivery_elsewhere(ref)
        try:
            made = _append_result(store, ref, result_oid)
        except _CannotAppendError:  # no commit to append to, and none will become of it
            return "branch_moved"
        # Expects the request commit: a push without a lease would bring a deleted branch back.
        outcome = swap(store, [RefUpdate(ref.ref, made.oid, ref.oid)], authority=ref.ref)[ref.ref]
        if outcome.landed:
            return "copied"
        return "branch_deleted" if outcome.tip is None else "branch_moved"

    def restore_copy(self, ref: RequestRef, result_oid: str) -> str | None:
        """Create a request branch that is gone with a result on it; return its commit, None where another is there.

        Raises:
            BusError: the remote does not give the request, or it is no commit to append to.
            RemoteError: the remote did not answer.
        """
        name = _copy_name(ref.id)
        try:
            # With its history: where no ref leads to the request any more, the remote takes it whole only.
            store = self._store.isolate(name, [ref.oid], max_bytes=TREE_MAX_BYTES, commits=HISTORY_MAX_COMMITS)
            made = _append_result(store, ref, result_oid)
            outcome = swap(store, [RefUpdate(ref.ref, made.oid, None)], authority=ref.ref)[ref.ref]
            return made.oid if outcome.landed else None
        finally:
            self._store.drop(name)

    def delivery(self, run_id: str, asked_oid: str, tip: str | None, result_oid: str) -> Delivery | None:
        """Return whether a published result was copied to its request branch, by the branch's tip; None: not yet."""
        if tip is None:
            return "branch_deleted"
        if tip == asked_oid:
            return None
        name = _copy_name(run_id)
        try:
            with self._quarantine.reading("copy", run_id, tip):
                store = self._store.isolate(name, [tip], max_bytes=TREE_MAX_BYTES, checked=False)
                with store.reader() as reader:
                    entry = _result_entry(reader, tip)
                    copied = entry is not None and entry.oid == commits.read_commit(reader, result_oid).tree
        except BusError:
            copied = False
        finally:
            self._store.drop(name)
        return "copied" if copied else "branch_moved"

    def _isolated(self, ref: RequestRef) -> RefStore:
        """Return a store with a request's commit; one that is no good is not fetched again.

        Raises:
            RequestRejectedError: it is no good, or is not there any more.
            RemoteError: the remote did not answer.
        """
        try:
            with self._quarantine.reading("request", ref.ref, ref.oid):
                return self._store.isolate(ref.id, [ref.oid], max_bytes=TREE_MAX_BYTES)
        except ObjectError as error:
            raise RequestRejectedError(error.message) from error
        except MissingObjectError as error:
            raise RequestRejectedError(f"{ref.ref} no longer leads to {ref.oid[:12]}: {error.message}") from error

    def _delivery_elsewhere(self, ref: RequestRef, unmoved: Delivery | None = None) -> Delivery:
        """Return why nothing is appended to a branch; `unmoved` is the answer where it is where it was.

        Raises:
            RemoteError: the remote lists the commit and does not give it, and no answer was given for that.
        """
        tip = tips_of(self._store, [ref.ref]).get(ref.ref)
        if tip == ref.oid and unmoved is None:
            raise RemoteError(f"{self._store.route} lists {ref.oid[:12]} at {ref.ref} but does not give it")
        return "branch_deleted" if tip is None else unmoved or "branch_moved"

    def _is_copy(self, pushed: RequestRef, tip: str) -> bool:
        """Whether a tip is the runner's copy on top of our request."""
        name = _copy_name(pushed.id)
        try:
            with self._store.isolate(name, [tip], max_bytes=TREE_MAX_BYTES).reader() as reader:
                return pushed.oid in commits.read_commit(reader, tip).parents
        finally:
            self._store.drop(name)


class _CannotAppendError(BusError):
    """A request's commit is none that a result can be appended to."""


def _append_result(store: RefStore, ref: RequestRef, result_oid: str) -> GitObject:
    """Write the commit of a request with a result on it, a function of both; return it.

    Raises:
        BusError: the result is not here.
        _CannotAppendError: the request is no commit to append to.
    """
    with store.reader() as reader:
        result = commits.read_commit(reader, result_oid)
        try:
            request = commits.read_commit(reader, ref.oid)
            entries = commits.read_entries(reader, request.tree, TOP_TREE_MAX_BYTES)
            folder = commits.read_folder(reader, request, TOP_TREE_MAX_BYTES)
        except (ObjectError, MissingObjectError) as error:
            raise _CannotAppendError(f"nothing can be appended to {ref.ref}: {error.message}") from error
    folder[commits.RESULT_FOLDER] = TreeEntry(DIRECTORY, commits.RESULT_FOLDER, result.tree)
    inner = tree(folder.values())
    entries[commits.FOLDER] = TreeEntry(DIRECTORY, commits.FOLDER, inner.oid)
    top = tree(entries.values())
    made = commit(top.oid, (ref.oid,), result.time_unix_s, f"result of {ref.id} [skip ci]", store.committer)
    store.write([inner, top, made])
    return made


def _received(reader: Reader, ref: RequestRef) -> ReceivedRequest:
    """Return what a fetched request branch holds.

    Raises:
        ObjectError: no request that can be read.
        FencedError: it carries a result already.
    """
    head = commits.read_commit(reader, ref.oid)
    folder = commits.read_folder(reader, head, TOP_TREE_MAX_BYTES)
    if commits.RESULT_FOLDER in folder:
        raise FencedError(f"{ref.ref} already carries a result")
    data, signature = commits.read_signed(reader, folder, commits.REQUEST_FILE)
    if data is None:
        entry = commits.read_entries(reader, head.tree, TOP_TREE_MAX_BYTES).get(commits.FOLDER)
        is_folder = entry is None or entry.mode == DIRECTORY
        raise MalformedObjectError(
            "it holds no .mac-bridge/request.json" if is_folder else "its .mac-bridge is a link or a file, not a folder"
        )
    return ReceivedRequest(ref, data, signature)


def _asked(data: bytes) -> Request | None:
    """Return the request in untrusted bytes, None where they are none; whether it holds is for its host to say."""
    try:
        return Request.parse(data)
    except ValueError:
        return None


def _copy_name(run_id: str) -> str:
    """Return a name for the isolated store that holds a copy: several commands of a clone may look at a run at once."""
    return f"copy-{run_id}-{secrets.token_hex(4)}"


def base_name(run_id: str) -> str:
    """Return the name of the isolated store that holds a request's history."""
    return f"{run_id}-base"


def _workload_tree(reader: Reader, oid: str) -> GitObject:
    """Return the tree of a commit, `.mac-bridge` taken out."""
    entries = commits.read_entries(reader, commits.read_commit(reader, oid).tree, TOP_TREE_MAX_BYTES)
    return tree(entry for entry in entries.values() if entry.name != commits.FOLDER)


def _result_entry(reader: Reader, tip: str) -> TreeEntry | None:
    head = commits.read_commit(reader, tip)
    return commits.read_folder(reader, head, TOP_TREE_MAX_BYTES).get(commits.RESULT_FOLDER)


def _signed(name: bytes, data: bytes, signature: bytes | None) -> Mapping[bytes, bytes]:
    return {name: data} if signature is None else {name: data, name + commits.SIGNATURE: signature}


def _created(data: bytes) -> int:
    """Return the time in a request's own bytes, so that the same request is always the same commit."""
    try:
        return int(parse_rfc3339(json.loads(data)["created"]).timestamp())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BusError("a request to be sent must be JSON with the time `created`") from error
