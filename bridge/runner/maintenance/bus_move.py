"""Move a bus to another remote: let it run empty, carry every ref over, and say at the old place where it is.

In this order, each step of which may be taken again after a crash: the root at both places says that the bus is moving,
so that nothing is begun at either; what goes on ends; all refs are carried; the root at the old place says where the
bus is, and what was pushed meanwhile is carried too; the new place is opened. Nobody follows by themselves.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from bridge.bus.moving import carry
from bridge.bus.sides.runner import BUS_SETTING, RunnerBus
from bridge.bus.store.gather import WorkBudget
from bridge.errors import RemoteError, RouteMissingError, UsageError
from bridge.records.bus import Beacon
from bridge.run.lease import beacon_counts_s
from bridge.runner.maintenance.owner import BusOwner
from bridge.system.clock import Clock, parse_rfc3339
from bridge.system.remote_words import Cause
from bridge.trust.key_seals import KeySeals
from bridge.trust.root import RootContent, RootError, TrustRoot, read_root
from bridge.version import VERSION

LOOK_S: Final = 2.0
STOPPED_S: Final = 180.0  # a runner that was seen to live is waited for so long to see that the bus moved
_CALLS_MAX: Final = 5000
_TOLD_COUNT: Final = 3


@dataclass(frozen=True)
class Moved:
    """What a move came to.

    Attributes:
        bus_id: the bus, which is the same.
        refs: how many were carried.
        late: runners that have not said that they stopped at the old place.
        is_told: whether the old place says where the bus is.
    """

    bus_id: str
    refs: int
    late: tuple[str, ...] = ()
    is_told: bool = True


class BusMove:
    """A move of one bus.

    Args:
        owner: this account as the owner of the bus at the old place.
        bus: the bus at the old place, which must not be asked for its record before.
        target: the new place, on which nothing but the move looks.
        told: where others find the new place.
        clock: the machine's clocks.
        say: takes a line for people.
    """

    def __init__(
        self, owner: BusOwner, bus: RunnerBus, target: RunnerBus, told: str, *, clock: Clock, say: Callable[[str], None]
    ) -> None:
        self._owner, self._bus, self._told, self._clock, self._say = owner, bus, told, clock, say
        bus.read_moved()
        with old_place(bus.route, told):
            owner.require_key()
            self._record = bus.identity()
        bus.use_seals(KeySeals(lambda: owner.root.authority(vouched=True)))
        self._old, self._new = (each.place(self._record.prefix) for each in (bus, target))

    def run(self, *, now: bool = False) -> Moved:
        """Move the bus, or go on where an earlier try was cut off.

        Args:
            now: wait for nothing that goes on: what runs then is left by its runner, whose next start delivers it. An
                old place that takes no push at all is left as it is.

        Raises:
            UsageError: this account does not own the bus, or the new place is not for it; nothing was changed.
            RemoteError: one of the places refuses something, or did not answer.
            BusError: the old place does not give all that it lists, or another writer was there first.
        """
        if self._old.route == self._new.route and self._told == self._record.moving_to:
            self._open()  # the old place is gone, and all that was carried is here
            return Moved(self._record.bus_id, len(self._new.refs()))
        self._check()
        if self._record.moved_to and not self._is_arriving(self._root_at_new()):
            return Moved(self._record.bus_id, 0)
        renewals = "amend" if self._new.try_prefix().moves else "chain"
        self._say(f"fetching all of {self._old.route}")
        self._old.fetch(self._old.refs())
        if not self._record.moved_to:
            try:
                self._announce()
            except RemoteError:
                if not now or not self._is_closed():
                    raise
                refs = carry(self._old, self._new)
                self._open(renewals)
                return Moved(self._record.bus_id, refs, is_told=False)
            self._new.write(self._record, self._owner.root.files)
            if not now:
                self._wait("waiting for", self._going_on)
            self._say(f"carrying all to {self._new.route}")
            carry(self._old, self._new)
            self._change(schema_version=3, moving_to="", moved_to=self._told, minimum_client=VERSION)
        late = self._wait("waiting until these have stopped here:", self._not_stopped, STOPPED_S)
        refs = carry(self._old, self._new)
        self._open(renewals)
        return Moved(self._record.bus_id, refs, late)

    def stay(self) -> None:
        """Take back that the bus is moving.

        Raises:
            UsageError: it is not moving, or has moved.
        """
        if place := self._record.moved_to:
            raise UsageError(
                f"the bus of {self._old.route} has moved to {place}; it is too late to stay",
                remedy=f"move it on from there: kakeya-runner bus move NEW --bus {shlex.quote(place)}",
            )
        if not self._record.moving_to:
            raise UsageError(f"the bus of {self._old.route} is not moving")
        self._change(moving_to="")

    def _check(self) -> None:
        """Refuse a new place that is not for this bus, before anything is changed.

        Raises:
            UsageError: it is another bus's, the old one, or holds what is not this bus's.
            RemoteError: it does not answer, or takes no refs at the bus's prefix.
        """
        record, old, new = self._record, self._old, self._new
        for word, place in (("is moving to", record.moving_to), ("moved to", record.moved_to)):
            if place not in {"", self._told}:
                raise UsageError(
                    f"the bus of {old.route} {word} {place}; got {self._told}",
                    remedy=f"kakeya-runner bus move {shlex.quote(place)} goes on with that"
                    + ("; to stay: kakeya-runner bus move --stay" if record.moving_to else ""),
                )
        there, owned = new.refs(), new.owned()
        if old.route == new.route or new.is_same_as(old):
            raise UsageError(f"{new.route} is the place that the bus is at", remedy="name another, empty repository")
        root = self._root_at_new() if owned else None
        if owned and (root is None or root.bus_id != record.bus_id):
            whose = "a bus" if root is None else f"bus {root.bus_id}"
            raise UsageError(
                f"{new.route} carries {whose} already, and this is bus {record.bus_id}",
                remedy="name an empty repository",
            )
        if self._is_arriving(root) or record.moved_to:
            return  # what is there, an earlier try brought
        if root is not None and root.content.record.moved_to:
            raise UsageError(
                f"{new.route} is a former place of this bus, where its root says that it moved to "
                f"{root.content.record.moved_to}",
                remedy="name an empty repository: who has not followed yet learns there where the bus is",
            )
        here, there = {**old.refs(), **old.owned()}, {**there, **owned}
        strange = sorted(ref for ref, oid in there.items() if here.get(ref) != oid)
        if strange:
            raise UsageError(
                f"{new.route} is not empty: its {strange[0]} is not that of {old.route}",
                remedy="name an empty repository, made without a first commit",
            )

    def _root_at_new(self) -> TrustRoot | None:
        """Return the root that the new place shows where its owner is this bus's; None where it is not whole."""
        try:
            files = self._new.root_files()
            root = None if files is None else read_root(files)
        except RootError:
            return None
        return root

    def _is_arriving(self, root: TrustRoot | None) -> bool:
        """Return whether the root at the new place says that this move has not ended."""
        return root is not None and root.content.record.moving_to == self._told

    def _is_closed(self) -> bool:
        """Return whether the old place refuses a ref of the bus that nobody protects, by a rule or for want of rights.

        Its runners then claim nothing there either.
        """
        try:
            self._old.try_prefix()
        except RemoteError as error:
            return error.cause in {Cause.RULE, Cause.RIGHTS}
        return False

    def _announce(self) -> None:
        self._change(moving_to=self._told)
        self._say(
            f"the bus is moving: its runners begin nothing more; --now waits for no run; to stay after all: {STAY}"
        )

    def _change(self, **changes: object) -> None:
        """Write the next root and record at the old place."""
        record = self._record.evolve(**changes)
        new = shlex.quote(self._told)
        way = f"kakeya-runner bus move {new} --now carries all, and leaves it as it is"
        if record.moved_to:
            way = f"kakeya-runner bus move {new} --bus {new} opens the new place as it is"
        with old_place(self._old.route, self._told, way):
            if record != self._record:
                self._owner.change(lambda content: replace(content, record=record))
            if self._bus.has_record:
                self._bus.update(record)
        self._record = record

    def _open(self, renewals: str | None = None) -> None:
        """Let the new place be served: its root says nothing of a move."""
        record = self._record.evolve(
            schema_version=2, moving_to="", moved_to="", renewals=renewals or self._record.renewals
        )

        def settle(content: RootContent) -> RootContent:
            return replace(content, record=record)

        self._new.write(record, self._owner.next_files(settle))

    def _wait(self, what: str, look: Callable[[], Iterator[str]], most_s: float | None = None) -> tuple[str, ...]:
        """Look again and again until nothing is left; say what is, each time that it changes; return what is left."""
        told: tuple[str, ...] = ()
        began_s = self._clock.steady_s()
        while left := tuple(look()):
            if most_s is not None and self._clock.steady_s() - began_s >= most_s:
                return left
            if left != told:
                more = f" and {len(left) - _TOLD_COUNT} more" if len(left) > _TOLD_COUNT else ""
                self._say(f"{what} {', '.join(left[:_TOLD_COUNT])}{more}")
                told = left
            self._clock.sleep(LOOK_S)
        return ()

    def _going_on(self) -> Iterator[str]:
        """Yield what has to end before the bus is carried: runs, and runners that may still begin one."""
        live = self._live()
        alive = {beacon.runner for beacon in live}
        yield from (f"{beacon.runner}, which has not seen yet that the bus is moving" for beacon in live
                    if beacon.state not in {"draining", "stopped"})  # fmt: skip
        busy = {run_id: beacon.runner for beacon in live for run_id in (*beacon.running, *beacon.spooled)}
        now_s = self._clock.now().timestamp()
        for run_id, tip in self._bus.newest_claims(self._bus.snapshot().claims, WorkBudget(_CALLS_MAX)).items():
            claim = tip.claim
            if claim.state == "terminal" or tip.signature.refused:
                continue
            ends_s = parse_rfc3339(claim.time).timestamp() + self._record.counted_lease_s(claim.lease_s)
            if run_id in busy or now_s < ends_s:  # else its runner is gone, and another ends the run there as here
                busy.pop(run_id, None)
                gone = "" if claim.runner in alive else " (not running: kakeya-runner serve there ends it, or: --now)"
                yield f"run {run_id} on {claim.runner}{gone}"
        yield from (f"the result of {run_id} on {runner}" for run_id, runner in busy.items())

    def _live(self) -> list[Beacon]:
        """Return the beacons of the runners that live, as of now."""
        now = self._clock.now()
        return [
            beacon
            for _, beacon in self._bus.read_beacons()
            if beacon.state != "stopped"
            and (now - parse_rfc3339(beacon.time)).total_seconds() < beacon_counts_s(beacon, self._record)
        ]

    def _not_stopped(self) -> Iterator[str]:
        """Yield the runners that have not said yet that they stopped here."""
        yield from (beacon.runner for beacon in self._live())


STAY: Final = "kakeya-runner bus move --stay"


@contextmanager
def old_place(route: str, told: str, way: str = "") -> Iterator[None]:
    """Say with an error of the place that a bus moves from how the bus goes on without it.

    Args:
        route: of that place, without user information.
        told: where others find the new place; empty where nothing moves.
        way: what goes on where that place takes no push at all; empty where it was not even read.

    Raises:
        RemoteError, RouteMissingError: what came up, with one more remedy.
    """
    try:
        yield
    except (RemoteError, RouteMissingError) as error:
        if told:
            more = f"where {route} takes no push at all: {way}"
            if not way:
                more = (
                    f"where {route} is gone: git push --mirror {shlex.quote(told)} from a mirror that is left of it, "
                    f"then on each host {BUS_SETTING.format(place=told)}; in each clone kakeya-mac init --bus "
                    f"{shlex.quote(f'{told}#ID')}, ID being the bus's"
                )
            error.remedy = f"{error.remedy or 'try again'}; {more}"
        raise
