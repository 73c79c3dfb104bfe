"""A bus in memory that counts what is asked of it and lets each call take its time, and refs that strangers push."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from bridge.bus.content.commits import FOLDER, REQUEST_FILE, RESULT_FOLDER, claim_commit, file_tree
from bridge.bus.refs import names
from bridge.bus.views import RequestRef
from bridge.records.claim import Claim
from bridge.records.request import Request
from bridge.system.clock import Clock, rfc3339
from bridge.system.gitobjects import DIRECTORY, REGULAR, GitObject, TreeEntry, blob, commit, tree
from tests.fakes.asking import make_request
from tests.fakes.memory_bus import BUS_ID, Faults, MemoryBus, MemoryRemote, bus_record
from tests.steps.stepping import Stepping

CALL_S = 0.3  # a git call over a good network
SLOW_S = 4.0  # the longest over a bad one, where each call takes its own time
LOSS = 0.01  # the share of its calls whose request or reply is lost


@dataclass
class CallMeter:
    """Counts the calls of one actor; each takes time on the virtual clock, over a bad network by chance."""

    clock: Stepping
    call_s: float = CALL_S
    bad_network: random.Random | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def faults(self) -> Faults:
        return Faults(decide=self._decide)

    def take(self) -> Counter[str]:
        """Return what was counted since the last call."""
        counts, self.counts = self.counts, Counter()
        return counts

    def _decide(self, operation: str) -> str | None:
        self.counts[operation] += 1
        chance = self.bad_network
        self.clock.advance(self.call_s if chance is None else chance.uniform(0.0, SLOW_S))
        lost = chance is not None and chance.random() < LOSS
        return chance.choice(("lost", "unanswered")) if chance is not None and lost else None


def new_remote(clock: Clock, **changes: object) -> MemoryRemote:
    """Return a remote that carries a bus."""
    remote = MemoryRemote()
    MemoryBus(remote, clock=clock).create(bus_record(clock, **changes))
    return remote


def push_raw(remote: MemoryRemote, ref: str, objects: list[GitObject]) -> str:
    """Put objects at a ref as anybody with git can, the last one as its tip; return the tip."""
    remote.objects.update({git_object.oid: git_object for git_object in objects})
    remote.refs[ref] = objects[-1].oid
    return objects[-1].oid


def request_with_message(remote: MemoryRemote, request: Request, message: str) -> RequestRef:
    """Push a request whose commit has a message of the stranger's own."""
    folder, objects = file_tree({REQUEST_FILE: request.canonical()})
    top = tree([TreeEntry(DIRECTORY, FOLDER, folder.oid)])
    head = commit(top.oid, (), 1_700_000_000, message)
    return RequestRef(request.id, request.ref, push_raw(remote, request.ref, [*objects, top, head]))


def ended_run(remote: MemoryRemote, clock: Clock, *, runner: str = "older") -> str:
    """Put a run on the bus that ended and whose result was copied; return its id."""
    request = make_request(BUS_ID, "mlx-env-probe", now=clock.now())
    request_commit = request_with_message(remote, request, f"request {request.id}")
    summary = blob(b"ended")
    top = tree([TreeEntry(REGULAR, b"summary.md", summary.oid)])
    result = commit(top.oid, (), 1_700_000_000, f"result {request.id}")
    first = Claim(
        id=request.id, request_oid=request_commit.oid, state="claimed", runner=runner, nonce="1" * 32, sequence=0,
        lease_s=15.0, time=rfc3339(clock.now()),
    )  # fmt: skip
    last = first.evolve(
        state="terminal", nonce="2" * 32, sequence=1, reason="passed", exit_code=0, result_oid=result.oid
    )
    head, objects = claim_commit(first, ())
    end, more = claim_commit(last, (head.oid, result.oid))
    claim = names.claim_ref(names.DEFAULT_PREFIX, request.id)
    push_raw(remote, claim, [summary, top, result, *objects, *more, end])
    inner = tree([TreeEntry(DIRECTORY, RESULT_FOLDER, top.oid)])
    outer = tree([TreeEntry(DIRECTORY, FOLDER, inner.oid)])
    copy = commit(outer.oid, (request_commit.oid,), 1_700_000_000, f"result of {request.id} [skip ci]")
    push_raw(remote, request.ref, [inner, outer, copy])
    return request.id
