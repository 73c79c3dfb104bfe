"""The bus as a whole, explored: runners, crashes, deleted claims, lost, repeated and late pushes, clocks that jump.

Every runner uses the production protocol over the simulated remote and follows the rules a runner follows. Whatever
happens: a run has one owner at a time, no run is executed twice, an end is final, every chain is one that
`check_next` allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bridge.bus.tree import Tree
from bridge.bus.views import ClaimView, HeldClaim, RequestRef
from bridge.errors import FencedError, RemoteError
from bridge.records.claim import Claim
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import Faults, MemoryBus, MemoryRemote

LEASE_S = 15.0
NAMES = ("a", "b")
FATES = (None, None, None, "lost", "unanswered", "repeated", "delayed")
LISTINGS = (None, None, None, "lost")


@dataclass
class Sighting:
    """A tip and when, on the observer's own steady clock, it was first seen."""

    oid: str
    since_s: float


@dataclass
class ModelRunner:
    """A runner as the design wants it: journal first, push, act only on an acknowledgement."""

    name: str
    remote: MemoryRemote
    clock: FakeClock
    faults: Faults = field(default_factory=Faults)
    journal: set[str] = field(default_factory=set)
    executed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.boot()

    def boot(self) -> None:
        """Lose everything but the journal."""
        self.actor = Actor(MemoryBus(self.remote, clock=self.clock, faults=self.faults), self.clock, self.name)
        self.held_claim: HeldClaim | None = None
        self.ref: RequestRef | None = None
        self.intent: Claim | None = None
        self.acknowledged_s = 0.0
        self.sightings: dict[str, Sighting] = {}

    def fresh(self) -> bool:
        """Whether the lease is certainly still ours."""
        return self.clock.steady_s() - self.acknowledged_s < LEASE_S * 2 / 3

    def move(self, make: str, **changes: object) -> bool:
        """Advance the held claim; after a lost answer the very same claim is sent again."""
        assert self.held_claim is not None
        assert self.ref is not None
        if self.intent is None:
            self.intent = self.actor.record(
                self.ref, make, self.held_claim.claim.sequence + 1, lease_s=LEASE_S, **changes
            )
        try:
            publish = self.intent.state == "terminal"
            self.held_claim = (self.actor.bus.publish if publish else self.actor.bus.advance)(
                self.held_claim, self.intent
            )
        except FencedError:
            self.held_claim = self.ref = self.intent = None
            return False
        except RemoteError:
            return False
        self.intent, self.acknowledged_s = None, self.clock.steady_s()
        return True


class BusModel(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def open(self) -> None:
        self.clock = FakeClock()
        self.remote = MemoryBus(clock=self.clock).remote
        self.client = Actor(MemoryBus(self.remote, clock=self.clock), self.clock, "client")
        self.runners = {
            name: ModelRunner(name, self.remote, FakeClock(steady=1000.0 * number)) for number, name in enumerate(NAMES)
        }
        self.requests: list[RequestRef] = [self.client.submit().ref]
        self.ends: dict[str, str] = {}

    # What people and the world do

    @rule()
    def submit(self) -> None:
        if len(self.requests) < 2:
            self.requests.append(self.client.submit().ref)

    @rule(seconds=st.sampled_from([6.0, 16.0]))
    def time_passes(self, seconds: float) -> None:
        for runner in self.runners.values():
            runner.clock.advance(seconds)

    @rule(name=st.sampled_from(NAMES), seconds=st.sampled_from([-100_000.0, -1.0, 100_000.0]))
    def wall_clock_jumps(self, name: str, seconds: float) -> None:
        clock = self.runners[name].clock
        steady = clock.steady
        clock.advance(seconds)
        clock.steady = steady

    @rule(name=st.sampled_from(NAMES))
    def late_pushes_arrive(self, name: str) -> None:
        self.runners[name].faults.flush()

    @rule(name=st.sampled_from(NAMES))
    def a_runner_is_killed(self, name: str) -> None:
        self.runners[name].boot()

    @rule(number=st.integers(0, 1))
    def somebody_deletes_a_claim(self, number: int) -> None:
        ref = self.requests[number % len(self.requests)]
        view = self.client.bus.read_claim(ref.id)
        if view is not None and view.claim.state != "terminal":
            del self.remote.refs[f"refs/kakeya/claim/{ref.id}"]

    # What runners do

    @precondition(lambda self: self.requests)
    @rule(
        name=st.sampled_from(NAMES),
        number=st.integers(0, 1),
        fate=st.sampled_from(FATES),
        listing=st.sampled_from(LISTINGS),
        renew=st.sampled_from([False, False, True]),
    )
    def works(self, name: str, number: int, fate: str | None, listing: str | None, renew: bool) -> None:
        """Do the next thing of a runner's life over a line that is good, or bad in one way, for as long as it takes."""
        runner = self.runners[name]
        runner.faults.decide = {"push": fate, "list": listing, "fetch": listing}.get
        if runner.held_claim is None:
            self._claim(runner, self.requests[number % len(self.requests)])
        elif renew and runner.intent is None:
            runner.move(runner.held_claim.claim.state)
        elif runner.held_claim.claim.state == "claimed":
            self._start(runner)
        else:
            self._publish(runner)
        runner.faults.decide = lambda operation: None

    def _claim(self, runner: ModelRunner, ref: RequestRef) -> None:
        if runner.intent is None:
            runner.ref, runner.intent = ref, runner.actor.record(ref, "claimed", 0, lease_s=LEASE_S)
        runner.journal.add(runner.intent.id)
        try:
            runner.held_claim = runner.actor.bus.claim(runner.intent)
        except FencedError:
            runner.ref = runner.intent = None
        except RemoteError:
            return
        else:
            runner.intent, runner.acknowledged_s = None, runner.clock.steady_s()

    def _start(self, runner: ModelRunner) -> None:
        assert runner.ref is not None
        run_id = runner.ref.id
        if runner.intent is None and not runner.fresh():
            runner.move("claimed")  # renewed before it is used, or fenced
        elif runner.move("started") and runner.held_claim is not None and runner.held_claim.claim.state == "started":
            runner.executed.append(run_id)

    def _publish(self, runner: ModelRunner) -> None:
        assert runner.ref is not None
        assert runner.held_claim is not None
        if runner.intent is not None and runner.intent.state != "terminal":
            runner.move("started")
            return
        files = {"manifest.json": b"{}", "by": runner.name.encode()}
        oid = runner.actor.bus.build_result(Tree(files), runner.ref.id)
        if runner.move("terminal", result_oid=oid):
            runner.held_claim = runner.ref = None

    @rule(
        name=st.sampled_from(NAMES),
        number=st.integers(0, 1),
        fate=st.sampled_from(FATES),
        waits_s=st.sampled_from([0.0, 6.0, 16.0]),
    )
    def looks_after_others(self, name: str, number: int, fate: str | None, waits_s: float) -> None:
        """Expire what has not moved for a lease on the observer's own clock; take over or finalise."""
        runner = self.runners[name]
        ref = self.requests[number % len(self.requests)]
        for pause_s in (0.0, waits_s):
            self.time_passes(pause_s)
            view = runner.actor.bus.read_claim(ref.id)
            if (
                runner.held_claim is not None
                or runner.intent is not None
                or view is None
                or view.claim.state == "terminal"
            ):
                return
            now = runner.clock.steady_s()
            sighting = runner.sightings.get(ref.id)
            if sighting is None or sighting.oid != view.oid:
                sighting = runner.sightings[ref.id] = Sighting(view.oid, now)
            own = view.claim.runner == name and ref.id in runner.journal
            if own or now - sighting.since_s >= view.claim.lease_s:
                runner.faults.decide = {"push": fate}.get
                self._expire(runner, ref, view)
                runner.faults.decide = lambda operation: None
                return

    def _expire(self, runner: ModelRunner, ref: RequestRef, view: ClaimView) -> None:
        sequence = view.claim.sequence + 1
        runner.journal.add(ref.id)
        try:
            if view.claim.state == "started":
                lost = runner.actor.record(ref, "terminal", sequence, reason="runner_lost", exit_code=3)
                runner.actor.bus.take_over(view, lost)
                return
            runner.intent = runner.actor.record(ref, "claimed", sequence, lease_s=LEASE_S)
            runner.held_claim, runner.ref = runner.actor.bus.take_over(view, runner.intent), ref
            runner.acknowledged_s = runner.clock.steady_s()
        except (FencedError, RemoteError):
            pass
        runner.intent = None

    # What must hold

    @invariant()
    def no_run_is_executed_twice(self) -> None:
        executions = [run_id for runner in self.runners.values() for run_id in runner.executed] if self._open() else []
        assert len(executions) == len(set(executions)), executions

    @invariant()
    def a_run_has_one_owner_and_an_allowed_chain(self) -> None:
        for ref in self.requests if self._open() else []:
            view = self.client.bus.read_claim(ref.id)  # raises BusError when the chain is not an allowed one
            owners = [
                runner.name
                for runner in self.runners.values()
                if runner.held_claim is not None and view is not None and runner.held_claim.oid == view.oid
            ]
            assert len(owners) <= 1
            if view is not None and owners:
                assert view.claim.runner == owners[0]

    @invariant()
    def an_end_is_final_and_its_result_is_there(self) -> None:
        for ref in self.requests if self._open() else []:
            view = self.client.bus.read_claim(ref.id)
            if ref.id in self.ends:
                assert view is not None
                assert view.oid == self.ends[ref.id]
            elif view is not None and view.claim.state == "terminal":
                self.ends[ref.id] = view.oid
                if view.claim.result_oid is not None:
                    assert self.client.bus.read_result(view.claim.result_oid).files["by"] in {b"a", b"b"}

    def _open(self) -> bool:
        return hasattr(self, "requests")


TestBusModel = BusModel.TestCase
TestBusModel.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_the_model_notices_a_bus_without_compare_and_swap() -> None:
    """Break the remote and the model must fail: otherwise its invariants would be worth nothing."""

    class Careless(MemoryRemote):
        def apply(self, updates, objects, *, atomic=False):
            with self.lock:
                self.objects.update(objects)
                self.refs.update({update.ref: update.new for update in updates if update.new is not None})
                return {update.ref: True for update in updates}

    clock = FakeClock()
    remote = Careless()
    maker = MemoryBus(remote, clock=clock)
    from tests.fakes.memory_bus import bus_record

    maker.create(bus_record(clock))
    sent = Actor(maker, clock).submit()
    first, second = (ModelRunner(name, remote, FakeClock()) for name in ("a", "b"))
    for runner in (first, second):
        runner.ref = sent.ref
        runner.held_claim = runner.actor.claim(sent.ref)
    for runner in (first, second):
        if runner.move("started"):
            runner.executed.append(sent.ref.id)
    assert [*first.executed, *second.executed] == [sent.ref.id] * 2
