"""An open bus as a command uses it: its record, what this clone remembers of it, and which bus it must be."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.client.clone.run_ids import resolve
from bridge.client.connection.liveness import SeenRunner, look
from bridge.client.connection.pins import Pins, RootReader, answer_about, pins
from bridge.client.document.parts import BusPart
from bridge.errors import WRONG_BUS_REMEDY, BusMissingError, WrongBusError
from bridge.ids import is_id

if TYPE_CHECKING:
    from bridge.bus.sides.requester import RequesterBus
    from bridge.bus.sides.shared import SharedBus
    from bridge.bus.views import RunView
    from bridge.client.clone.config import BusChoice, ClientSettings
    from bridge.client.clone.store import Store
    from bridge.records.bus import BusRecord
    from bridge.system.clock import Clock
    from bridge.trust.judgement import TrustAnswer
    from bridge.trust.root_memory import KnownRoot

_ARCHIVED_MAX_COUNT: Final = 10_000  # archived runs that are looked through for a part of an id
_SEEN_S: Final = 10.0  # so long a command goes by the runners that it has seen; they say how they are every minute


@dataclass(frozen=True)
class BusSession:
    """An open bus, what it says of itself, and what this clone remembers.

    Attributes:
        wake_runner: starts the embedded runner if none holds its lock; None on any other bus.
        runner_words: the last line that the embedded runner said; None on any other bus.
        bus_folder: where this bus keeps repositories of its own; None where it has none.
        roots: judges the bus's root; None where there is none to judge, as on this machine's own bus.
        opened_s: the steady time at which the bus was listed to open it; None where that is not known.
    """

    settings: ClientSettings
    bus: RequesterBus
    record: BusRecord
    store: Store
    clock: Clock
    wake_runner: Callable[[], bool] | None = None
    bus_folder: Path | None = None
    runner_words: Callable[[], str] | None = None
    roots: RootReader | None = None
    opened_s: float | None = None
    _pins: list[tuple[KnownRoot | None, Pins]] = field(default_factory=list, repr=False, compare=False)
    _looks: list[tuple[float, list[SeenRunner]]] = field(default_factory=list, repr=False, compare=False)

    def pins(self, option: Sequence[str] = ()) -> Pins:
        """Return what this reader goes by on this bus, as it is now; looked up in files once."""
        root = None if self.roots is None else self.roots.accepted
        if option:
            return pins(self.settings, option=option, record=self.record, root=root)
        if not self._pins or self._pins[-1][0] is not root:
            self._pins.append((root, pins(self.settings, record=self.record, root=root)))
        return self._pins[-1][1]

    def runners(self) -> list[SeenRunner]:
        """Return the runners of the bus, live ones first, as this command saw them a moment ago, or else sees them now.

        The first time, where the bus was opened a moment ago, the listing that opened it is gone by.
        """
        now_s = self.clock.steady_s()
        if not self._looks or now_s - self._looks[-1][0] >= _SEEN_S:
            opened = not self._looks and self.opened_s is not None and now_s - self.opened_s < _SEEN_S
            self._looks.append((now_s, look(self.bus, self.record, self.clock.now(), as_opened=opened)))
        return self._looks[-1][1]

    @property
    def embedded(self) -> bool:
        """Whether runs happen on this machine."""
        return self.settings.bus.embedded

    def bus_part(self) -> BusPart:
        """Return the bus as `--json` shows it."""
        return replace(self.settings.bus.part(self.record.bus_id), route=self.bus.route)

    def bus_line(self) -> str:
        """Return the bus as people read it."""
        if self.embedded:
            return "embedded: runs on THIS machine; another: kakeya-mac init --bus ROUTE"
        choice = self.settings.bus
        pin = (
            "" if choice.bus_id is not None else f"; not pinned: kakeya-mac init --bus {shlex.quote(str(choice.route))}"
        )
        return f"{self.bus.route} ({self.record.bus_id[:8]}, from {choice.where}){pin}"

    def find(self, text: str) -> str:
        """Return the run id that a text means, asking this clone first, then the bus, then its archives."""
        further = [self._ids_on_bus] if self.embedded else [self._ids_on_bus, self._archived_ids]
        return resolve(text, self.store.ids(), *further)

    def view(self, run_id: str, *, with_log: bool = False) -> RunView:
        """Return what the bus shows of a run; one that was sent from here costs the same on a full bus.

        Args:
            run_id: the run.
            with_log: whether its log is read next.
        """
        sent = self.store.sent(run_id)
        if sent is not None and sent.bus_id == self.record.bus_id:
            self.bus.remember(run_id, sent.ref)
        return self.bus.view(run_id, with_log=with_log)

    def archived_at(self, run_id: str, files: Mapping[str, bytes]) -> float | None:
        """Return when another runner archived the end of a run that names exactly this result; None where none did.

        Raises:
            BusError: the bus does not give what it names.
        """
        claim = self.view(run_id).claim
        if claim is None or claim.archived_at is None or claim.claim.result_oid is None:
            return None
        return claim.archived_at if self.bus.read_result(claim.claim.result_oid).files == files else None

    def answer_about(self, run_id: str, files: Mapping[str, bytes], *, runner: str | None) -> TrustAnswer:
        """Return whether a runner may say what a run's result says; archives count where its key was revoked.

        Args:
            run_id: the run.
            files: the result tree.
            runner: the runner whose claim names the result, None where no claim was seen.

        Raises:
            BusError: the bus does not give what it names.
        """
        trusted = self.pins()
        answer = answer_about(files, trusted, runner=runner)
        if not answer.revoked:
            return answer
        return answer_about(files, trusted, runner=runner, archived_at=self.archived_at(run_id, files))

    def _ids_on_bus(self) -> set[str]:
        snapshot = self.bus.snapshot()
        return {run_id for run_id in (*(ref.id for ref in snapshot.requests), *snapshot.claims) if is_id(run_id)}

    def _archived_ids(self) -> set[str]:
        return {run.tip.claim.id for run in islice(self.bus.archived(), _ARCHIVED_MAX_COUNT)}


def identify(bus: SharedBus, choice: BusChoice) -> BusRecord:
    """Return the bus record, refused when it is not the pinned bus.

    Raises:
        BusMissingError: the remote carries no bus.
        WrongBusError: another bus; perhaps a fork.
    """
    try:
        record = bus.identity()
    except BusMissingError as error:
        raise BusMissingError(
            f"{bus.route} carries no bus (configured by {choice.where})",
            remedy=f"on the host, once: kakeya-runner setup --bus {shlex.quote(bus.route)} --create-bus; "
            "or kakeya-mac run --bus embedded",
        ) from error
    if choice.bus_id is not None and record.bus_id != choice.bus_id:
        raise WrongBusError(
            f"{bus.route} carries bus {record.bus_id}, but {choice.where} pins {choice.bus_id}; is it a fork?",
            remedy=WRONG_BUS_REMEDY,
        )
    return record


def bus_state(settings: ClientSettings, route: str) -> Path:
    """Return the folder of a bus's own control repository, one per route."""
    return settings.state_dir / "bus" / hashlib.sha256(route.encode("utf-8", "surrogateescape")).hexdigest()[:16]
