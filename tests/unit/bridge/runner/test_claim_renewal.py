"""A claim stays ours while its run is prepared, runs and ends; its log arrives whole and in order."""

from __future__ import annotations

import errno
import secrets

import pytest

from bridge.errors import FencedError, PolicyRefusedError, RemoteError
from bridge.limits import LOG_CHUNK_MAX_BYTES, WAKE_GRACE_S
from bridge.records.claim import Claim, RunProgress
from bridge.runner.connection.link import link_to
from bridge.runner.run.claim_renewal import ClaimRenewal, following
from bridge.system.clock import rfc3339
from bridge.system.tasks import THREADS
from tests.fakes.asking import make_request, push
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import Faults, MemoryBus, MemoryRemote, bus_record
from tests.support.waiting import until


class Steps:
    """`Tasks` whose work goes on in the test's own thread, for as many waits as it is given."""

    glance_s = 0.1

    def __init__(self, clock=None):
        """With a clock, each wait takes the time that it was asked for."""
        self._clock = clock

    def start(self, work, name):
        self._work = work
        return self

    def go(self, waits):
        self._left = waits
        self._work()

    def wait(self, event, timeout_s):
        self._left -= 1
        if self._clock is not None and self._left >= 0:
            self._clock.advance(timeout_s)
        return self._left < 0

    def join(self):
        """Nothing goes on beside the test."""


def claimed(clock, lease_s=600.0, tasks=THREADS, beacon=lambda: None, longest_s=None):
    """Claim a fresh request; return who keeps the claim, its bus, the request and what goes wrong."""
    remote = MemoryRemote()
    MemoryBus(remote, clock=clock).create(bus_record(clock, lease_s=longest_s or lease_s))
    faults = Faults()
    bus = MemoryBus(remote, clock=clock, faults=faults)
    link = link_to(bus, clock)
    ref = push(bus, make_request(bus.identity().bus_id, "mlx-env-probe"))
    claim = Claim(
        id=ref.id, request_oid=ref.oid, state="claimed", runner="mini", nonce=secrets.token_hex(16), sequence=0,
        lease_s=lease_s, phase="preparing", time=rfc3339(clock.now()),
    )  # fmt: skip
    renewal = ClaimRenewal(
        link, bus.claim(claim), clock=clock, beacon=beacon, asked_s=clock.steady_s(), progress_s=0.1, tasks=tasks
    )
    return renewal, bus, ref, faults


def go_on(renewal, steps, clock, time_s):
    """Let a claim be renewed for a time, in which it is never lost."""
    until_s = clock.steady_s() + time_s
    while clock.steady_s() < until_s:
        steps.go(1)
        assert renewal.lost() is None


@pytest.fixture
def keep(clock):
    parts = claimed(clock)
    yield parts
    parts[0].stop()


def test_a_long_preparation_keeps_the_claim_and_the_start_is_not_lost_to_a_renewal():
    clock = FakeClock()
    steps = Steps(clock)
    renewal, bus, ref, _ = claimed(clock, 15.0, steps)
    began_s = clock.steady_s()
    renewal.start()
    while clock.steady_s() - began_s < 40.0:  # longer than two whole leases
        steps.go(1)
        assert renewal.lost() is None
    for _ in range(20):
        renewal.advance(state="started", phase="running")
        steps.go(1)
    view = bus.read_claim(ref.id)
    assert view.claim.state == "started"
    assert {claim.state for claim in view.history[:2]} == {"claimed"}
    assert [claim.sequence for claim in view.history] == list(range(len(view.history)))


def test_the_log_arrives_whole_with_its_end_mark(keep):
    renewal, bus, ref, _ = keep
    renewal.advance(state="started", phase="running")
    renewal.start()
    data = secrets.token_bytes(2 * LOG_CHUNK_MAX_BYTES + 100)
    for at in range(0, len(data), 10_000):
        renewal.feed(data[at : at + 10_000])
    renewal.finish("judging")
    chunks = bus.read_log(ref.id)
    assert b"".join(chunk.data for chunk in chunks) == data
    assert [chunk.head.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_an_answer_that_is_lost_does_not_fence_off_its_own_claim(keep):
    renewal, _, _, faults = keep
    answers = iter(["unanswered", "unanswered"])
    faults.decide = lambda operation: next(answers, None) if operation == "push" else None
    renewal.feed(b"hello")
    assert renewal.advance(state="started", phase="running").claim.state == "started"


def test_a_full_disk_keeps_nobody_from_letting_the_claim_go():
    clock, operations, looked = FakeClock(), [], []
    steps = Steps(clock)
    renewal, _, _, faults = claimed(clock, 15.0, steps)
    renewal.start()

    def unanswered(operation: str) -> str:
        operations.append(operation)
        return "unanswered"

    def full(operation: str) -> None:
        looked.append(operation)
        raise OSError(errno.ENOSPC, "No space left on device")

    faults.decide = unanswered
    while not operations:
        steps.go(1)
    faults.decide = full
    renewal.stop()
    assert looked


def test_a_disk_that_was_full_for_a_moment_costs_neither_the_lease_nor_a_piece_of_the_log():
    clock, refused = FakeClock(), []
    steps = Steps(clock)
    renewal, bus, ref, faults = claimed(clock, 15.0, steps)
    renewal.advance(state="started", phase="running")
    renewal.start()

    def full() -> None:
        if len(refused) < 2:
            refused.append(clock.steady_s())
            raise OSError(errno.ENOSPC, "No space left on device")

    faults.write = full
    began_s = clock.steady_s()
    while clock.steady_s() - began_s < 40.0:  # longer than two whole leases
        renewal.feed(b"said\n")
        steps.go(1)
        assert renewal.lost() is None
    renewal.finish("judging")
    assert len(refused) == 2
    log = b"".join(chunk.data for chunk in bus.read_log(ref.id))
    assert log == b"said\n" * log.count(b"\n") != b""
    assert bus.read_log(ref.id)[-1].head.final


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), PolicyRefusedError("a list is broken")]
)
def test_a_sign_of_life_that_cannot_be_made_costs_no_lease(error):
    clock = FakeClock()
    steps = Steps(clock)

    def beacon() -> None:
        raise error

    renewal, _, _, _ = claimed(clock, 15.0, steps, beacon)
    renewal.advance(state="started", phase="running")
    renewal.start()
    go_on(renewal, steps, clock, 40.0)  # longer than two whole leases


def test_a_lease_that_was_lost_says_what_kept_it_from_being_renewed():
    clock = FakeClock()
    steps = Steps(clock)
    renewal, _, _, faults = claimed(clock, 15.0, steps)
    renewal.start()
    faults.decide = lambda _: "lost"
    while renewal.lost() is None:
        steps.go(1)
    assert renewal.lost().startswith("the lease could not be renewed in time: memory: ")


def test_the_log_of_a_run_that_was_over_at_once_goes_with_its_end(keep):
    renewal, bus, ref, faults = keep
    pushed = []
    faults.decide = lambda operation: pushed.append(operation) if operation == "push" else None
    started = renewal.advance(state="started", phase="running")
    renewal.feed(b"hello")
    claim, chunk = renewal.finish("judging"), renewal.last_chunk()
    assert (claim, pushed) == (started, ["push"])
    end = following(claim, bus._clock, state="terminal", phase=None, reason="infrastructure", exit_code=12)
    bus.publish(claim, end, log=chunk)
    assert pushed == ["push"] * 2
    ((head, data),) = ((chunk.head, chunk.data) for chunk in bus.read_log(ref.id))
    assert (head.final, data) == (True, b"hello")


def test_a_run_that_was_renewed_says_that_it_is_judged(keep):
    renewal, *_ = keep
    renewal.advance(state="started", phase="running")
    renewal.advance()
    assert renewal.finish("judging").claim.phase == "judging"
    assert renewal.last_chunk() is None


def test_the_lease_counts_from_when_a_slow_push_was_asked():
    clock = FakeClock()
    renewal, _, _, faults = claimed(clock, 15.0, Steps())

    def slow(operation: str) -> None:
        if operation == "push":
            clock.advance(7.0)

    faults.decide = slow
    renewal.advance(state="started", phase="running")
    # A lease of 15 s is the owner's for 10 s after the push was asked; after its answer there are 3 s left.
    clock.advance(2.9)
    assert renewal.lost() is None
    clock.advance(0.2)
    assert renewal.lost() == "the lease could not be renewed in time"


def test_a_remote_that_hangs_is_no_machine_that_slept():
    clock = FakeClock()
    renewal, *_ = claimed(clock, WAKE_GRACE_S, Steps())
    clock.advance(WAKE_GRACE_S + 1.0)  # in the preparation, before anybody looks
    renewal.start()
    assert renewal.lost() == "the lease could not be renewed in time"

    steps = Steps()
    renewal, _, _, faults = claimed(clock, WAKE_GRACE_S, steps)

    def hang(operation: str) -> str | None:
        if operation == "push":
            clock.advance(WAKE_GRACE_S + 1.0)
            return "lost"
        return None

    faults.decide = hang
    renewal.start()
    clock.advance(WAKE_GRACE_S / 2)
    steps.go(1)
    assert renewal.lost().startswith("the lease could not be renewed in time")


def test_a_machine_that_stood_still_for_less_than_a_minute_asks_the_bus_before_it_ends_a_run():
    clock = FakeClock()
    steps = Steps()
    renewal, *_ = claimed(clock, 60.0, steps)
    renewal.start()
    clock.advance(13.0)  # the renewal is almost due
    assert renewal.lost() is None
    clock.advance(30.0)  # what a lease of 60 s leaves to its owner is over
    assert renewal.lost() is None
    steps.go(1)
    clock.advance(WAKE_GRACE_S / 3)
    assert renewal.lost() is None  # the bus said that nobody else had it


def test_a_run_that_has_gone_on_for_long_outlives_a_remote_that_is_away_for_longer_than_a_young_one_does():
    def away_s(run_s: float) -> float:
        """Return for how long a remote was away when a run of this age was given up."""
        clock = FakeClock()
        steps = Steps(clock)
        steps.glance_s = 2.0
        renewal, _, _, faults = claimed(clock, 60.0, steps, longest_s=600.0)
        renewal.advance(state="started", phase="running")
        renewal.start()
        go_on(renewal, steps, clock, run_s)
        faults.decide = lambda _: "lost"
        gone_s = clock.steady_s()
        while renewal.lost() is None:
            steps.go(1)
        return clock.steady_s() - gone_s

    young_s, old_s = away_s(60.0), away_s(3000.0)
    assert young_s <= 40.0
    # The lease is a sixth of the time, of which two thirds are the owner's and one of these went by in waiting.
    assert 200.0 < old_s <= 2 / 3 * 600.0


def test_a_lease_grows_with_what_pushes_take_and_never_beyond_what_the_bus_allows():
    clock = FakeClock()
    steps = Steps(clock)
    renewal, bus, ref, faults = claimed(clock, 15.0, steps)  # which is what this bus allows
    renewal.start()
    go_on(renewal, steps, clock, 120.0)
    assert bus.read_claim(ref.id).claim.lease_s == 15.0
    renewal, bus, ref, faults = claimed(clock, 60.0, steps, longest_s=600.0)
    faults.decide = lambda operation: clock.advance(10.0) if operation == "push" else None
    renewal.start()
    go_on(renewal, steps, clock, 120.0)
    assert bus.read_claim(ref.id).claim.lease_s == 120.0


def test_progress_goes_with_the_log_or_alone_after_a_while_and_not_into_the_next_phase(keep, clock):
    renewal, bus, ref, _ = keep
    renewal.advance(state="started", phase="running")
    progress = RunProgress(step="train", number=1, steps=2, unit="sample", done=3, most=9)
    renewal.report(progress)
    renewal.feed(b"three\n")
    renewal.start()
    until(lambda: bus.read_claim(ref.id).claim.progress == progress)
    renewal.finish("judging")
    assert bus.read_claim(ref.id).claim.progress is None


def test_progress_alone_is_told_once_the_bus_was_quiet_for_a_while(keep):
    renewal, bus, ref, _ = keep
    renewal.extend(600.0)  # nothing but the progress is a reason to push
    renewal.start()
    progress = RunProgress(step="train", number=1, steps=2)
    renewal.report(progress)
    until(lambda: bus.read_claim(ref.id).claim.progress == progress)


def test_a_claim_that_moved_is_noticed(keep):
    renewal, bus, _, _ = keep
    claim = renewal.held
    bus.advance(claim, following(claim, renewal._clock))
    with pytest.raises(FencedError):
        renewal.advance(state="started", phase="running")
    assert renewal.lost() == "another runner owns the claim now"


def test_a_claim_that_was_deleted_is_put_back_and_moves_on_with_its_log(clock):
    steps = Steps()
    renewal, bus, ref, _ = claimed(clock, tasks=steps)
    began = renewal.advance(state="started", phase="running")
    renewal.start()
    del bus.remote.refs[f"refs/kakeya/claim/{ref.id}"]
    renewal.feed(b"one\n")
    until(lambda: steps.go(1) or bus.read_log(ref.id))
    view = bus.read_claim(ref.id)
    assert (view.chain[:-1], view.claim.state, renewal.lost()) == (began.chain, "started", None)
    assert [chunk.data for chunk in bus.read_log(ref.id)] == [b"one\n"]


def claimed_by_another(renewal, bus, ref):
    for kind in ("claim", "start"):
        del bus.remote.refs[f"refs/kakeya/{kind}/{ref.id}"]
    claim = renewal.held.claim.evolve(state="claimed", phase="preparing", sequence=0, beat=0, runner="other")
    return bus.claim(claim)


def test_a_claim_that_was_deleted_is_put_over_another_runners_that_has_not_started(keep):
    renewal, bus, ref, _ = keep
    began = renewal.advance(state="started", phase="running")
    other = claimed_by_another(renewal, bus, ref)
    renewal.extend(600.0)
    view = bus.read_claim(ref.id)
    assert (view.chain[:-1], view.claim.state, renewal.lost()) == (began.chain, "started", None)
    with pytest.raises(FencedError):  # so the other one cannot start it any more
        bus.advance(other, following(other, renewal._clock, state="started", phase="running"))


def test_a_claim_that_was_deleted_and_started_by_another_is_not_put_back(keep):
    renewal, bus, ref, _ = keep
    renewal.advance(state="started", phase="running")
    other = claimed_by_another(renewal, bus, ref)
    other = bus.advance(other, following(other, renewal._clock, state="started", phase="running"))
    with pytest.raises(FencedError):
        renewal.extend(600.0)
    assert (bus.read_claim(ref.id).oid, renewal.lost()) == (other.oid, "another runner owns the claim now")


def test_a_claim_that_is_deleted_again_at_once_costs_one_push_a_try_and_the_lease_decides():
    clock = FakeClock()
    renewal, bus, ref, faults = claimed(clock, 15.0)
    pushes = []

    def delete(operation):
        if operation == "push":
            pushes.append(operation)
            bus.remote.refs.pop(f"refs/kakeya/claim/{ref.id}", None)

    faults.decide = delete
    with pytest.raises(RemoteError, match="gone again"):
        renewal.extend(600.0)
    assert renewal.lost() is not None
    assert "another runner" not in renewal.lost()
    assert len(pushes) <= 3 * 10  # a move, the claim put back, a move: tried while the lease holds, ever more rarely
