"""Claims over a store: create, advance, end, read.

Each write is one compare-and-swap on the run's claim ref, and a start one on another ref, which shows that nobody
began the run before: no claim means that nobody holds one. The commit is a function of the claim and its parents, so
that repeating a call after a lost reply is harmless: the same commit arrives twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store.gather import Gatherer, Tip, WorkBudget
from bridge.bus.store.interface import MalformedObjectError, Reader, RefStore, RefUpdate
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.store.swap import SwapResult, swap, tips_of
from bridge.bus.views import ClaimTip, ClaimView, HeldClaim
from bridge.errors import BegunError, BusError, FencedError, ObjectError, RemoteError
from bridge.limits import CLAIM_CHAIN_MAX_COUNT, MIB
from bridge.records.bus import BusRecord
from bridge.records.claim import Claim
from bridge.run.state import check_first, check_next
from bridge.system.gitobjects import Commit, GitObject, blob, parse_commit
from bridge.trust.judgement import TrustAnswer
from bridge.trust.seals import BusSeals, seal_in

RESTORE_TRIES: Final = 4
CHAIN_MAX_BYTES: Final = 64 * MIB  # a chain with all its parents: a terminal claim brings its result along
TIPS_MAX_BYTES: Final = 16 * MIB  # a batch of newest claims without parents
TIP_MAX_BYTES: Final = MIB
REMEMBERED_MAX_COUNT: Final = 8192


class Claims:
    """The claim refs of one bus."""

    def __init__(self, store: RefStore, record: BusRecord, seals: BusSeals, quarantine: Quarantine) -> None:
        self._store, self._prefix, self._seals, self._quarantine = store, record.prefix, seals, quarantine
        self._amends = record.renewals == "amend"
        self._read: dict[str, tuple[Claim, Commit]] = {}
        self._absent: set[str] = set()
        self._tips = Gatherer(store, quarantine, "claim", batch_max_bytes=TIPS_MAX_BYTES, one_max_bytes=TIP_MAX_BYTES)

    def create(self, claim: Claim, over: str | None = None) -> tuple[HeldClaim, str | None]:
        """Create the claim ref, one winner; return the hold, and the tip of the run's log where one is there.

        Args:
            claim: the first of its chain.
            over: the refused tip that it replaces.

        Raises:
            BegunError: another claim began the run; it is at the ref now.
            FencedError: it exists already.
        """
        check_first(claim)
        oid, outcomes = self._move(claim, (), over, [])
        ref, start, log = (of(self._prefix, claim.id) for of in (names.claim_ref, names.start_ref, names.log_ref))
        # The ref is read again: a remote that acknowledged but did not keep the claim has no single winner.
        tips = tips_of(self._store, [ref, start, log])
        if not outcomes[ref].landed or tips.get(ref) != oid:
            raise FencedError(f"run {claim.id} is already claimed")
        if start in tips:
            self._give_way(claim.id, tips[start], at=oid)
        return HeldClaim(oid, claim, (oid,), self._amends), tips.get(log)

    def take_over(self, view: ClaimView, claim: Claim) -> HeldClaim:
        """Replace a claim at exactly the tip that was seen.

        Raises:
            FencedError: the tip moved.
        """
        return self.advance(view.held(), claim, [])[0]

    def put_back(self, held_claim: HeldClaim) -> None:
        """Create the claim ref anew, at a held claim whose ref was deleted; over what gives way to it.

        Raises:
            FencedError: a claim is there that does not.
        """
        ref, over = names.claim_ref(self._prefix, held_claim.claim.id), None
        for _ in range(RESTORE_TRIES):
            outcome = swap(self._store, [RefUpdate(ref, held_claim.oid, over)], authority=ref)[ref]
            if outcome.landed:
                return
            over = outcome.tip
            if over is not None and not self._gives_way(over, held_claim):
                break
        raise FencedError(f"the claim of run {held_claim.claim.id} cannot be put back: {over} is there")

    def begun(self, run_id: str, tip: str | None = None) -> ClaimView | None:
        """Return the chain of the claim that began a run, None where none is known that counts.

        Args:
            run_id: the run.
            tip: where its ref was just seen; None: it is listed.

        Raises:
            InfrastructureError: it cannot be read now.
        """
        ref = names.start_ref(self._prefix, run_id)
        tip = tip or tips_of(self._store, [ref]).get(ref)
        try:
            view = None if tip is None else self._view(run_id, ref, tip)
        except ObjectError:
            return None  # no claim of this run
        return view if view is not None and view.claim.state == "started" and not view.signature.refused else None

    def begin_again(self, held_claim: HeldClaim) -> None:
        """Make sure that a held, started claim is the one that began its run, before it is begun after a crash.

        Raises:
            BegunError: another claim began it; that is at the claim ref now.
            RemoteError: it cannot be told.
        """
        with self._store.reader() as reader:
            start = next(oid for oid in held_claim.chain if self._one(reader, oid)[0].state == "started")
        self._create_start(held_claim, start, [])

    def withdraw(self, held_claim: HeldClaim) -> bool:
        """Delete the claim ref where it is still at a held claim; return whether it was."""
        ref = names.claim_ref(self._prefix, held_claim.claim.id)
        return swap(self._store, [RefUpdate(ref, None, held_claim.oid)], authority=ref)[ref].landed

    def advance(
        self, held_claim: HeldClaim, claim: Claim, along: list[RefUpdate], *, result_oid: str | None = None
    ) -> tuple[HeldClaim, dict[str, SwapResult]]:
        """Move a held claim on, sending other updates along; return the new hold and those updates' outcomes.

        A renewal of a renewal takes its place: it has the same parent. A claim of ours that was pushed again, and a
        tip that took the place of our signed claim without being one, are replaced, and the move is tried again.

        Raises:
            BegunError: the claim was to begin the run, and another did; that is at the ref now.
            FencedError: the tip moved.
        """
        if (held_claim.claim.state, claim.state) == ("claimed", "started"):
            return self._begin(held_claim, claim, along)
        below = self._below(held_claim, claim)
        parents = (below[-1],) if result_oid is None else (below[-1], result_oid)
        ref = names.claim_ref(self._prefix, claim.id)
        oid, outcomes = self._move(claim, parents, held_claim.oid, along)
        for _ in range(RESTORE_TRIES):
            tip = outcomes[ref].tip
            if outcomes[ref].landed or tip is None or not self._is_set_back(held_claim, tip):
                break
            oid, outcomes = self._move(claim, parents, tip, along)
        if not outcomes[ref].landed:
            raise FencedError(f"the claim of run {claim.id} moved on without us, to {outcomes[ref].tip}")
        others = {name: outcome for name, outcome in outcomes.items() if name != ref}
        return HeldClaim(oid, claim, (*below, oid), self._amends), others

    def read(self, run_id: str, oid: str | None) -> ClaimView | None:
        """Return the chain that ends at a commit, or at the ref's tip; None when there is no claim.

        Raises:
            ObjectError: the ref holds no claim chain of this run.
        """
        ref = names.claim_ref(self._prefix, run_id)
        tip = tips_of(self._store, [ref]).get(ref) if oid is None else oid
        if tip is None:
            return None
        return self._view(run_id, ref, tip)

    def _view(self, run_id: str, ref: str, tip: str) -> ClaimView:
        with self._quarantine.reading("claim", ref, tip):
            self._store.obtain({ref: tip}, max_bytes=CHAIN_MAX_BYTES)
            history, chain = self._walk(run_id, tip)
            _check_chain(run_id, history)
        signature = self._signature(run_id, chain)
        self._seals.note("claim", history[-1].runner, ref, tip, signature)
        return ClaimView(tip, history[-1], history, chain, self._is_sealed(tip), signature, self._amends)

    def archived(self, view: ClaimView, at: float) -> ClaimView:
        """Return a chain that another runner archived at a time, its signature judged for that."""
        claim = view.claim
        signature = self._seal_of(claim.id, view.oid, archived_at=at)
        self._seals.note("claim", claim.runner, names.claim_ref(self._prefix, claim.id), view.oid, signature)
        return replace(view, signature=signature, archived_at=at)

    def newest(self, tips: Mapping[str, str], budget: WorkBudget) -> dict[str, ClaimTip]:
        """Return the newest claims, by run id, of {run id: tip}: those that could be read, newest run first.

        Raises:
            RemoteError: the remote did not answer.
        """
        unread = [
            Tip(names.claim_ref(self._prefix, run_id), oid)
            for run_id, oid in sorted(tips.items(), reverse=True)
            if oid not in self._read
        ]
        if unread:
            self._tips.gather(unread, budget, self._take_tip)
        return {run_id: self._tip(run_id, oid) for run_id, oid in tips.items() if oid in self._read}

    def tip_of(self, claim: Claim, oid: str, head: Commit) -> ClaimTip:
        """Return a claim that was read elsewhere as the newest of its run, and what its seal is worth here."""
        self._remember(oid, claim, head)
        return self._tip(claim.id, oid)

    def bad(self, oid: str) -> str | None:
        """Return why a tip is no claim, None where it is one or was not read."""
        return self._quarantine.reason("claim", oid)

    def is_terminal(self, oids: dict[str, str]) -> set[str]:
        """Return the run ids, of {run id: claim tip}, whose tip is known to be terminal; nothing is fetched."""
        ended = set()
        with self._store.reader() as reader:
            for run_id, oid in oids.items():
                if oid in self._absent:
                    continue
                try:
                    claim, _ = self._one(reader, oid)
                except BusError:
                    self._absent.add(oid)
                    continue
                if claim.state == "terminal" and claim.id == run_id and not self._signature(run_id, (oid,)).refused:
                    ended.add(run_id)
        if len(self._absent) > REMEMBERED_MAX_COUNT:
            self._absent.intersection_update(oids.values())
        return ended

    def raw(self, chain: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
        """Return (commit object, claim JSON) of each commit."""
        raw_claims = []
        with self._store.reader() as reader:
            for oid in chain:
                data = reader.read(oid, "commit", commits.COMMIT_MAX_BYTES)
                claim, _ = self._one(reader, oid)
                raw_claims.append((data, claim.canonical()))
                if commits.read_entries(reader, commits.read_commit(reader, oid).tree)[commits.CLAIM_FILE].oid != (
                    blob(claim.canonical()).oid
                ):
                    raise BusError(f"claim {oid[:12]} is not stored as canonical bytes")
        return tuple(raw_claims)

    def _signature(self, run_id: str, chain: tuple[str, ...]) -> TrustAnswer:
        """Return the state of a chain's seals: that of its tip, which signs its parents.

        An unsigned claim may not follow a signed one, or a forger would take a run over by leaving the seal out. A
        reader who knows neither key cannot verify and asks only that the tip carry a seal.
        """
        tip = self._seal_of(run_id, chain[-1])
        if tip.word != "unsigned" or not self._seals.configured:
            return tip
        was_sealed = any(map(self._is_sealed, chain[:-1])) and not self._is_sealed(chain[-1])
        return self._seal_of(run_id, chain[-1], follows_signed=True) if was_sealed else tip

    def _is_sealed(self, oid: str) -> bool:
        return seal_in(self._read[oid][1].message) is not None

    def _seal_of(
        self, run_id: str, oid: str, *, follows_signed: bool = False, archived_at: float | None = None
    ) -> TrustAnswer:
        claim, head = self._read[oid]
        ref, seal = names.claim_ref(self._prefix, run_id), seal_in(head.message)
        by = commits.committer_of(claim, head)
        signature = self._seals.verify(
            "claim", ref, runner=claim.runner, head=head, record=claim, by=by, follows_signed=follows_signed,
            archived_at=archived_at,
        )  # fmt: skip
        # A seal signs neither tree nor the rest of the commit: the same statement in another commit has another id,
        # which its runner does not know as its tip, so the runner would be fenced out of its own run.
        if signature.signed and commits.claim_commit(claim, head.parents, seal, by)[0].oid != oid:
            return TrustAnswer("altered", "a signed claim in a commit that its runner did not make")
        return signature

    def _begin(
        self, held_claim: HeldClaim, claim: Claim, along: list[RefUpdate]
    ) -> tuple[HeldClaim, dict[str, SwapResult]]:
        """Move a held claim on to the one that begins its run, and create the ref of the start at the same commit.

        The start alone decides. Where it landed and the claim did not, as on a remote that moves each ref on its own,
        the claim is put back if somebody deleted it, and the start withdrawn if another took it over.
        """
        ref, below = names.claim_ref(self._prefix, claim.id), self._below(held_claim, claim)
        head = self._made(claim, (below[-1],))
        started = HeldClaim(head.oid, claim, (*below, head.oid), self._amends)
        outcomes = self._create_start(started, head.oid, [RefUpdate(ref, head.oid, held_claim.oid), *along])
        self._remember(head.oid, claim, parse_commit(head.data))
        if not outcomes[ref].landed:
            if self._was_taken_over(held_claim, outcomes[ref].tip):
                start = names.start_ref(self._prefix, claim.id)
                swap(self._store, [RefUpdate(start, None, head.oid)], authority=start)
                raise FencedError(f"the claim of run {claim.id} was taken over by {outcomes[ref].tip}")
            self.put_back(started)
        others = {update.ref for update in along}
        return started, {name: outcome for name, outcome in outcomes.items() if name in others}

    def _was_taken_over(self, held_claim: HeldClaim, tip: str | None) -> bool:
        """Return whether a claim of another runner follows a held one."""
        view = None if tip is None else self.read(held_claim.claim.id, tip)
        return view is not None and held_claim.oid in view.chain[:-1] and not view.signature.refused

    def _create_start(self, started: HeldClaim, oid: str, along: list[RefUpdate]) -> Mapping[str, SwapResult]:
        """Create the ref of a run's start; what is there and is no start that counts is replaced.

        Raises:
            BegunError: another claim began the run.
        """
        run_id, over = started.claim.id, None
        ref, start = names.claim_ref(self._prefix, run_id), names.start_ref(self._prefix, run_id)
        together = {start} | {update.ref for update in along if update.ref == ref}
        for _ in range(RESTORE_TRIES):
            outcomes = swap(self._store, [*along, RefUpdate(start, oid, over)], authority=start, atomic=together)
            over = outcomes[start].tip
            if outcomes[start].landed:
                return outcomes
            if over is None and ref in outcomes:
                raise FencedError(f"the claim of run {run_id} moved on without us, to {outcomes[ref].tip}")
            if over is not None:
                self._give_way(run_id, over, at=outcomes[ref].tip if ref in outcomes else started.oid, of=started)
        raise FencedError(f"the start of run {run_id} moved while it was written")

    def _give_way(self, run_id: str, start: str, *, at: str | None, of: HeldClaim | None = None) -> None:
        """Put the claim that began a run in the place of ours; where what is there began nothing, do nothing.

        Args:
            run_id: the run.
            start: the tip of its start.
            at: what is at the claim ref.
            of: our claim, whose chain alone is replaced; None: what is at the ref is ours.

        Raises:
            BegunError: it began the run.
        """
        begun = self.begun(run_id, start)
        if begun is None:
            return
        ref = names.claim_ref(self._prefix, run_id)
        if of is None or at is None or at in of.chain:
            swap(self._store, [RefUpdate(ref, begun.oid, at)], authority=ref)
        raise BegunError(f"runner {begun.claim.runner} began run {run_id}, and its claim was deleted: it is put back")

    def _gives_way(self, tip: str, held_claim: HeldClaim) -> bool:
        """Return whether what is at a claim ref gives way to a held claim: it is set back, or did not begin the run."""
        if self._is_set_back(held_claim, tip):
            return True
        if held_claim.claim.state != "started":
            return False
        run_id = held_claim.claim.id
        view = self.read(run_id, tip)
        if view is None or view.claim.state == "terminal" or view.signature.refused:
            return False
        start = names.start_ref(self._prefix, run_id)
        began = tips_of(self._store, [start]).get(start)
        return began in held_claim.chain or (began is None and view.claim.state == "claimed")

    def _below(self, held_claim: HeldClaim, claim: Claim) -> tuple[str, ...]:
        """Return the chain that a new claim is put on.

        Raises:
            BusError: it cannot follow there.
        """
        if not (claim.beat and held_claim.claim.beat and claim.sequence == held_claim.claim.sequence):
            check_next(held_claim.claim, claim)
            return held_claim.chain
        if claim.beat <= held_claim.claim.beat:
            raise BusError(f"renewal {claim.beat} does not count on from {held_claim.claim.beat}")
        with self._store.reader() as reader:
            check_next(self._one(reader, held_claim.chain[-2])[0], claim)
        return held_claim.chain[:-1]

    def _is_set_back(self, held_claim: HeldClaim, tip: str) -> bool:
        """Return whether a tip is an earlier claim of ours, or replaced our signed one without being a signed claim."""
        if tip in held_claim.chain:
            return True
        with self._store.reader() as reader:
            self._one(reader, held_claim.oid)
        signed = self._seal_of(held_claim.claim.id, held_claim.oid).signed
        try:
            view = self.read(held_claim.claim.id, tip)
        except ObjectError:
            return signed  # no claim chain of this run
        except (RemoteError, BusError):
            return False
        ours = (
            view is not None
            and view.chain[:-1] == held_claim.chain[:-1]
            and view.claim.runner == held_claim.claim.runner
        )
        if view is not None and ours and not view.signature.refused:
            return view.claim.position < held_claim.claim.position
        # A claim that is signed by a key this runner does not know may be another runner's, after the lease ran out.
        return signed and (view is None or view.signature.refused or not view.sealed)

    def _walk(self, run_id: str, tip: str) -> tuple[tuple[Claim, ...], tuple[str, ...]]:
        """Return the claims of a chain that is here, and their commits, oldest first.

        Raises:
            ObjectError: one of them is no claim, or there are too many.
        """
        history: list[Claim] = []
        chain: list[str] = []
        at: str | None = tip
        with self._store.reader() as reader:
            while at is not None:
                claim, head = self._one(reader, at)
                history.append(claim)
                chain.append(at)
                at = head.parents[0] if head.parents else None
                if len(chain) > CLAIM_CHAIN_MAX_COUNT:
                    raise MalformedObjectError(f"claim chain of run {run_id} is longer than {CLAIM_CHAIN_MAX_COUNT}")
        return tuple(reversed(history)), tuple(reversed(chain))

    def _take_tip(self, reader: Reader, tip: Tip) -> None:
        claim, head = commits.read_record(reader, tip.oid, commits.CLAIM_FILE, Claim)
        if names.claim_ref(self._prefix, claim.id) != tip.ref:
            raise MalformedObjectError(f"holds a claim of run {claim.id}")
        self._remember(tip.oid, claim, head)

    def _tip(self, run_id: str, oid: str) -> ClaimTip:
        claim, _ = self._read[oid]
        signature = self._signature(run_id, (oid,))
        self._seals.note("claim", claim.runner, names.claim_ref(self._prefix, run_id), oid, signature)
        return ClaimTip(oid, claim, self._is_sealed(oid), signature)

    def _one(self, reader: Reader, oid: str) -> tuple[Claim, Commit]:
        claim = self._read.get(oid)
        if claim is None:
            claim = commits.read_record(reader, oid, commits.CLAIM_FILE, Claim)
            self._remember(oid, *claim)
        return claim

    def _remember(self, oid: str, claim: Claim, head: Commit) -> None:
        self._absent.discard(oid)
        self._read[oid] = (claim, head)
        while len(self._read) > REMEMBERED_MAX_COUNT:
            self._read.pop(next(iter(self._read)))

    def _move(
        self, claim: Claim, parents: tuple[str, ...], expect: str | None, along: list[RefUpdate]
    ) -> tuple[str, dict[str, SwapResult]]:
        ref, head = names.claim_ref(self._prefix, claim.id), self._made(claim, parents)
        outcomes = swap(self._store, [RefUpdate(ref, head.oid, expect), *along], authority=ref)
        if outcomes[ref].landed:
            self._remember(head.oid, claim, parse_commit(head.data))
        return head.oid, dict(outcomes)

    def _made(self, claim: Claim, parents: tuple[str, ...]) -> GitObject:
        """Make the commit of a claim, sealed, and store it here."""
        ref, by = names.claim_ref(self._prefix, claim.id), self._store.committer
        head, objects = commits.claim_commit(
            claim, parents, self._seals.sign("claim", ref, claim.runner, parents, claim, by=by), by
        )
        self._store.write(objects)
        return head


def _check_chain(run_id: str, history: tuple[Claim, ...]) -> None:
    """Refuse a chain of another run, or one whose claims do not follow each other.

    Raises:
        MalformedObjectError: with the reason.
    """
    if history[0].id != run_id:
        raise MalformedObjectError(f"the claim ref of run {run_id} holds a claim of run {history[0].id}")
    try:
        check_first(history[0])
        for before, after in pairwise(history):
            check_next(before, after)
    except BusError as error:
        raise MalformedObjectError(error.message) from error
