"""At each start compare the state with the bus, and read back from what this runner signed there what it lacks.

A state folder may be gone, restored from a copy or copied itself. What is read back is believed by this runner's own
signature only: its claims, with them the requests it let in; its results, with them the attempts. A state that was gone
or behind begins a new chain of attestations, as its numbers may be given out already, and that is said in one line.

Runs before anything is taken. Knows nothing about processes: what of a run is on this machine, recovery finds out.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import ClaimTip, Snapshot
from bridge.errors import BusError, IntegrityError
from bridge.ids import unix_ms
from bridge.limits import RESULT_MAX_BYTES
from bridge.records.bus import Beacon
from bridge.records.jobspec import JobSpec
from bridge.records.run import Attempt, RunRecord
from bridge.runner.connection.link import BusLink
from bridge.runner.connection.served import has_served, note_served
from bridge.runner.state.attempts import CountedRun, look_of, may_be_quoted, save_reports
from bridge.runner.state.database import Fact
from bridge.runner.state.folder import OpenState
from bridge.runner.state.ledger import KEPT, PERHAPS_BEGUN, LetIn
from bridge.system.clock import Clock, rfc3339

_CLAIM_FETCHES: Final = 64
_RESULTS_MAX_COUNT: Final = 256
_DEPTH_MAX: Final = 32


class ReadBack:
    """Reads back what one runner signed on one bus.

    Args:
        name: the runner's name.
        state: its state, as it was found.
        link: the bus.
        clock: dates what is noted.
        log: takes the line.
    """

    def __init__(self, name: str, state: OpenState, link: BusLink, *, clock: Clock, log: logging.Logger) -> None:
        self._name, self._state, self._link, self._clock, self._log = name, state, link, clock, log
        self._bus_id = link.record.bus_id

    def compare(self) -> None:
        """Compare the state with the bus, and bring it up to what this runner signed there.

        Raises:
            InfrastructureError: the bus does not answer, or the state cannot be written.
        """
        identity = self._state.folder.identity
        served = has_served(identity, self._bus_id)
        with self._link.lock:
            snapshot = self._link.bus.snapshot()
            beacons = self._link.bus.read_beacons(listed=snapshot.beacons)
        own = next((beacon for _, beacon in beacons if beacon.runner == self._name), None)
        lacking = self._lacking(snapshot) if self._link.signs else {}
        lost = self._state.lost
        why = lost if lost is not None and (served or lacking or own is not None) else self._behind(lacking, own)
        if why is not None:
            self._say(why, self._take(snapshot, lacking, own))
        nothing_of_ours = own is None and not lacking
        if lost is not None and served and (nothing_of_ours or not self._link.signs):
            self._state.database.note(Fact.TAKES_SINCE, rfc3339(self._clock.now()))
        note_served(identity, self._link.bus.route, self._link.record)

    def _behind(self, lacking: Mapping[str, ClaimTip], own: Beacon | None) -> str | None:
        """Return what shows that the state is older than the bus, None where nothing does."""
        if lacking:
            return f"the bus has {len(lacking)} runs that this runner signed and its state does not know"
        sent = self._state.database.fact(Fact.BEACON)
        if own is not None and self._link.signs and sent is not None and own.sequence > int(sent):
            return f"the bus has beacon {own.sequence} of this runner, and its state knows of {sent}"
        return None

    def _lacking(self, snapshot: Snapshot) -> dict[str, ClaimTip]:
        """Return the claims of the last thirty days that this runner signed and its state does not know, by run id.

        Raises:
            RemoteError: the bus does not answer.
        """
        oldest_ms = (self._clock.now() - KEPT).timestamp() * 1000
        known = self._state.ledger.runs(self._bus_id) | self._state.journal.runs()
        unknown = {
            run_id: oid
            for run_id, oid in snapshot.claims.items()
            if run_id not in known and unix_ms(run_id) > oldest_ms
        }
        if not unknown:
            return {}
        with self._link.lock:
            tips = self._link.bus.newest_claims(unknown, WorkBudget(_CLAIM_FETCHES))
        return {run_id: tip for run_id, tip in tips.items() if tip.claim.runner == self._name and tip.signature.signed}

    def _take(self, snapshot: Snapshot, lacking: Mapping[str, ClaimTip], own: Beacon | None) -> int:
        """Take over what this runner signed; return how many of its results were read."""
        now = rfc3339(self._clock.now())
        self._state.journal.begin_chain(secrets.token_hex(32))
        self._state.database.note(Fact.HISTORY_SINCE, now)
        self._state.ledger.read_back([*self._let_in(lacking), *self._perhaps_begun(snapshot, own, now)])
        with self._link.lock:
            branches = {ref.oid: ref.ref for ref in self._link.bus.requests_of(lacking)} if lacking else {}
        for _, tip in sorted(lacking.items()):
            self._go_on(tip, branches.get(tip.claim.request_oid))
        counted = list(self._counted(lacking))
        self._state.attempts.read_back(counted)
        return len(counted)

    def _let_in(self, lacking: Mapping[str, ClaimTip]) -> Iterator[LetIn]:
        for run_id, tip in lacking.items():
            first = tip.oid
            if tip.claim.state != "terminal":  # the run may go on, under its own claim alone
                with self._link.lock, suppress(BusError):
                    view = self._link.bus.read_claim(run_id, tip.oid)
                    first = tip.oid if view is None else view.chain[0]
            yield LetIn(self._bus_id, run_id, "", first, "unsigned", tip.claim.time)

    def _perhaps_begun(self, snapshot: Snapshot, own: Beacon | None, now: str) -> Iterator[LetIn]:
        """Yield requests without a claim that this runner, or whoever wrote their log, may have begun."""
        if not self._link.signs:
            return
        begun = set() if own is None else {*own.running, *own.spooled}
        with self._link.lock:
            begun |= self._link.bus.begun()
        for ref in snapshot.requests:
            if ref.id in begun and ref.id not in snapshot.claims:
                yield LetIn(self._bus_id, ref.id, "", PERHAPS_BEGUN, "unsigned", now)

    def _go_on(self, tip: ClaimTip, branch: str | None) -> None:
        """Write into the journal what recovery needs to go on with a run that has not ended, or is not delivered.

        Args:
            tip: this runner's claim.
            branch: the request branch that is still as it was claimed; None where it carries the result, or is gone.
        """
        claim, journal = tip.claim, self._state.journal
        if claim.state == "terminal" and (branch is None or claim.result_oid is None):
            return
        journal.append("fetched", claim.id, claim.request_oid, nonce=claim.nonce)
        journal.append("claimed" if claim.state == "claimed" else "started", claim.id, tip.oid)
        if claim.state == "terminal":
            ending = {"reason": claim.reason, "message": claim.message}
            journal.append("result_built", claim.id, claim.result_oid, ref=branch, **ending)

    def _counted(self, lacking: Mapping[str, ClaimTip]) -> Iterator[CountedRun]:
        """Yield the attempts that this runner's results name, oldest first, and keep their reports again."""
        ended = [tip for _, tip in sorted(lacking.items()) if tip.claim.result_oid is not None]
        for tip in ended[-_RESULTS_MAX_COUNT:]:
            try:
                with self._link.lock:
                    files = self._link.bus.read_result(str(tip.claim.result_oid)).files
                record = RunRecord.parse(files["run.json"], max_bytes=RESULT_MAX_BYTES, max_depth=_DEPTH_MAX)
                if record.attempt is not None and record.runner == self._name:
                    save_reports(self._state.folder.reports, record.id, files)
                    yield _counted_run(record, record.attempt, files)
            except (BusError, IntegrityError, KeyError, ValueError) as error:
                self._log.debug("the result of run %s cannot be read back: %s", tip.claim.id, error)

    def _say(self, why: str, results: int) -> None:
        self._log.warning(
            "the runner's state was set back: %s; what it signed on the bus is read back (%d results), its results are "
            "numbered from 1 in a new chain, and attempts are counted in full from now on", why, results,
        )  # fmt: skip


def _counted_run(record: RunRecord, attempt: Attempt, files: Mapping[str, bytes]) -> CountedRun:
    spec = JobSpec.parse(files["spec.json"], max_bytes=RESULT_MAX_BYTES) if "spec.json" in files else None
    look = None
    if spec is not None and may_be_quoted(spec) and record.code is not None:
        code, host = f"{record.code.identity} {record.code.tree or ''}", f"{record.host.name} {record.host.cpu}"
        look = look_of(spec, code, host, record.models)
    return CountedRun(attempt.key, record.id, record.started or record.claimed, look, attempt.confirms)
