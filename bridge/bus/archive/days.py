"""Find ended runs in the archives of a bus: by the day in a run's id, or newest days first.

An archive is a stranger's object like any other: bounded, read once, left out where it is none. What it holds of a run
is the claim that its runner signed; trust comes from there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from bridge.bus.content.archive import ArchiveCommit, claim_of, read_archive, read_runs
from bridge.bus.refs import names
from bridge.bus.refs.claims import CHAIN_MAX_BYTES, Claims
from bridge.bus.store.gather import Gatherer, Tip, WorkBudget
from bridge.bus.store.interface import MalformedObjectError, MissingObjectError, Reader, RefStore
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.views import ArchivedClaim
from bridge.ids import unix_ms
from bridge.limits import MIB
from bridge.records.archive import ArchivedRun
from bridge.records.claim import Claim
from bridge.system.clock import parse_rfc3339
from bridge.trust.judgement import TrustAnswer
from bridge.trust.seals import BusSeals

DAY_MAX_BYTES: Final = 2048 * MIB  # a whole day with its results, for remotes that give no commit by its id
_BATCH_MAX_BYTES: Final = 64 * MIB
_ONE_MAX_BYTES: Final = 16 * MIB
_READ_CALLS: Final = 24
_DAYS_KEPT: Final = 8
_LAST_MS: Final = int(dt.datetime.max.replace(tzinfo=dt.UTC).timestamp() * 1000) - 1


@dataclass(frozen=True)
class ArchivedDay:
    """What one runner archived of one day."""

    tip: Tip
    archive: ArchiveCommit
    runs: Mapping[str, ArchivedRun]

    @property
    def claims(self) -> dict[str, str]:
        """Claim commits by run id."""
        return claims_in(self.runs)


def claims_in(runs: Mapping[str, ArchivedRun]) -> dict[str, str]:
    """Return the claim commits of archived runs by run id; one that does not hold its claim is left out."""
    tips = {}
    for run_id, run in runs.items():
        with suppress(MalformedObjectError):
            tips[run_id] = claim_of(run)[0]
    return tips


def day_of(run_id: str) -> str:
    """Return the day, UTC, on which a run was asked for; anybody may name a ref by a later one than there is."""
    return dt.datetime.fromtimestamp(min(unix_ms(run_id), _LAST_MS) / 1000, dt.UTC).strftime("%Y-%m-%d")


class Archives:
    """The archives of one bus, as a reader sees them."""

    def __init__(self, store: RefStore, prefix: str, claims: Claims, seals: BusSeals, quarantine: Quarantine) -> None:
        self._store, self._prefix, self._claims, self._seals = store, prefix, claims, seals
        self._tips = Gatherer(
            store, quarantine, "archive", batch_max_bytes=_BATCH_MAX_BYTES, one_max_bytes=_ONE_MAX_BYTES
        )
        self._read: dict[str, ArchivedDay] = {}

    def listed(self, day: str | None = None) -> list[Tip]:
        """Return the archives that exist, of one day or of all, newest day first.

        Raises:
            RemoteError: the remote did not answer.
        """
        refs = self._store.list([names.archive_ref(self._prefix, "", "")]).refs
        named = [(names.archive_of(self._prefix, ref), Tip(ref, oid)) for ref, oid in refs.items()]
        dated = [(of[1], tip) for of, tip in named if of is not None and day in (None, of[1])]
        return [tip for _, tip in sorted(dated, key=lambda pair: (pair[0], pair[1].ref), reverse=True)]

    def read(self, tips: Sequence[Tip]) -> list[ArchivedDay]:
        """Return what archives hold; what is none, or not its runner's, is left out.

        Raises:
            RemoteError: the remote did not answer.
        """
        fresh = [tip for tip in tips if tip.oid not in self._read]
        if fresh:
            self._tips.gather(fresh, WorkBudget(_READ_CALLS), self._take)
        archives = [self._read[tip.oid] for tip in tips if tip.oid in self._read]
        while len(self._read) > _DAYS_KEPT:
            self._read.pop(next(iter(self._read)))
        return [day for day in archives if day.tip in tips and not self._answer(day).refused]

    def find(self, run_id: str) -> ArchivedClaim | None:
        """Return a run that was archived, None where no archive of its day has it.

        Raises:
            RemoteError: the remote did not answer.
        """
        days = self.read(self.listed(day_of(run_id)))
        claims = [claim for day in days if run_id in day.runs and (claim := self._found(day, run_id)) is not None]
        return max(claims, key=lambda claim: (not claim.tip.signature.refused, claim.tip.claim.position), default=None)

    def archived_by_others(self, claim: Claim, oid: str) -> float | None:
        """Return when a runner other than its own archived a claim, seconds since the epoch; None where none did.

        An archive counts by a signature that this reader accepts. Its time is that of its newest commit, which is never
        earlier than the run's line in it.

        Raises:
            RemoteError: the remote did not answer.
        """
        times = [
            parse_rfc3339(day.archive.head.time).timestamp()
            for day in self.read(self.listed(day_of(claim.id)))
            if day.archive.head.runner != claim.runner and self._answer(day).signed and day.claims.get(claim.id) == oid
        ]
        return min(times, default=None)

    def newest(self) -> Iterator[ArchivedClaim]:
        """Yield the archived runs, newest first.

        Raises:
            RemoteError: the remote did not answer.
        """
        tips = self.listed()
        for day in sorted({tip.ref.rpartition("/")[2] for tip in tips}, reverse=True):
            runs = self.runs_of([tip for tip in tips if tip.ref.endswith(f"/{day}")])
            yield from (runs[run_id] for run_id in sorted(runs, reverse=True))

    def runs_of(self, tips: Sequence[Tip]) -> dict[str, ArchivedClaim]:
        """Return what archives hold by run id; of two that hold the same run the first.

        Raises:
            RemoteError: the remote did not answer.
        """
        claims: dict[str, ArchivedClaim] = {}
        for day in self.read(tips):
            for run_id in day.runs:
                claim = None if run_id in claims else self._found(day, run_id)
                if claim is not None:
                    claims[run_id] = claim
        return claims

    def obtain(self, claim: ArchivedClaim) -> None:
        """Make a run's claims and its result readable here.

        Raises:
            MissingObjectError: the remote does not give them.
            RemoteError: the remote did not answer.
        """
        try:
            self._store.obtain({"": claim.tip.oid}, max_bytes=CHAIN_MAX_BYTES)
        except MissingObjectError:  # over protocol v0 a remote gives what a ref leads to, and nothing else
            self._store.obtain({claim.archive: claim.archive_oid}, max_bytes=DAY_MAX_BYTES)

    def _take(self, reader: Reader, tip: Tip) -> None:
        archive = read_archive(reader, tip.oid)
        head = archive.head
        if names.archive_ref(self._prefix, head.runner, head.day) != tip.ref:
            raise MalformedObjectError(f"holds the archive of {head.runner} of {head.day}")
        runs = read_runs(reader, archive)
        if any(day_of(run_id) != head.day for run_id in runs):
            raise MalformedObjectError(f"holds runs of another day than {head.day}")
        self._read[tip.oid] = ArchivedDay(tip, archive, runs)

    def _answer(self, day: ArchivedDay) -> TrustAnswer:
        """Return whether its runner may say what an archive says; asked anew each time, as keys are revoked."""
        head, ref = day.archive.head, day.tip.ref
        answer = self._seals.verify("archive", ref, runner=head.runner, head=day.archive.commit, record=head)
        self._seals.note("archive", head.runner, ref, day.tip.oid, answer)
        return answer

    def _found(self, day: ArchivedDay, run_id: str) -> ArchivedClaim | None:
        run = day.runs[run_id]
        try:
            oid, commit = claim_of(run)
        except MalformedObjectError:
            return None
        return ArchivedClaim(run.ref, self._claims.tip_of(run.claim, oid, commit), day.tip.ref, day.tip.oid)
