"""Claims over a store: create, move on, end, read back.

Each write is one compare-and-swap on the run's claim ref. The commit is a function of the claim and its parents, so
that repeating a call after a lost reply is harmless: the same commit arrives twice.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.store.interface import Reader, RefStore, RefUpdate
from bridge.bus.store.swap import SwapResult, swap, tips_of
from bridge.bus.views import ClaimView, HeldClaim
from bridge.errors import BusError, FencedError, RemoteError
from bridge.limits import CLAIM_CHAIN_MAX_COUNT
from bridge.records import Claim
from bridge.run.state import check_first, check_next
from bridge.system.gitobjects import Commit, blob, parse_commit
from bridge.trust.seals import BusSeals, SignatureState, seal_in

RESTORE_TRIES: Final = 4


class Claims:
    """The claim refs of one bus."""

    def __init__(self, store: RefStore, prefix: str, sealing: BusSeals) -> None:
        self._store = store
        self._prefix = prefix
        self._sealing = sealing
        self._read: dict[str, tuple[Claim, Commit]] = {}

    def create(self, claim: Claim, over: str | None = None) -> HeldClaim:
        """Create the claim ref, one winner; `over` is a tip that does not count and is replaced.

        Raises:
            FencedError: it exists already.
        """
        check_first(claim)
        oid, outcomes = self._move(claim, (), over, [])
        ref = names.claim_ref(self._prefix, claim.id)
        # The ref is read again: a remote that acknowledged but did not keep the claim has no single winner.
        if not outcomes[ref].landed or tips_of(self._store, [ref]).get(ref) != oid:
            raise FencedError(f"run {claim.id} is already claimed")
        return HeldClaim(oid, claim, (oid,))

    def take_over(self, seen: ClaimView, claim: Claim) -> HeldClaim:
        """Replace a claim at exactly the tip that was seen.

        Raises:
            FencedError: the tip moved.
        """
        return self.advance(HeldClaim(seen.oid, seen.claim, seen.chain), claim, [])[0]

    def advance(
        self, held: HeldClaim, claim: Claim, along: list[RefUpdate], *, result_oid: str | None = None
    ) -> tuple[HeldClaim, dict[str, SwapResult]]:
        """Move a held claim on, sending other updates along; return the new hold and those updates' outcomes.

        A signer takes its claim back from whoever displaced it without a right to.

        Raises:
            FencedError: the tip moved.
        """
        check_next(held.claim, claim)
        parents = (held.oid,) if result_oid is None else (held.oid, result_oid)
        ref = names.claim_ref(self._prefix, claim.id)
        oid, outcomes = self._move(claim, parents, held.oid, along)
        for _ in range(RESTORE_TRIES):
            tip = outcomes[ref].tip
            if outcomes[ref].landed or tip is None or not self._is_displaced(held, tip):
                break
            oid, outcomes = self._move(claim, parents, tip, along)
        if not outcomes[ref].landed:
            raise FencedError(f"the claim of run {claim.id} moved on without us, to {outcomes[ref].tip}")
        others = {name: outcome for name, outcome in outcomes.items() if name != ref}
        return HeldClaim(oid, claim, (*held.chain, oid)), others

    def read(self, run_id: str, oid: str | None) -> ClaimView | None:
        """Return the chain that ends at a commit, or at the ref's tip; None when there is no claim.

        Raises:
            BusError: what is there is no claim chain of this run.
        """
        ref = names.claim_ref(self._prefix, run_id)
        tip = tips_of(self._store, [ref]).get(ref) if oid is None else oid
        if tip is None:
            return None
        if tip not in self._read:
            self._store.obtain({ref: tip})
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
                    raise BusError(f"claim chain of run {run_id} is longer than {CLAIM_CHAIN_MAX_COUNT}")
        history.reverse()
        chain.reverse()
        _check_chain(run_id, history)
        standing = self._standing(run_id, tuple(chain))
        self._sealing.note("claim", history[-1].runner, ref, tip, standing)
        return ClaimView(tip, history[-1], tuple(history), tuple(chain), self._is_sealed(tip), standing)

    def is_terminal(self, oids: dict[str, str]) -> set[str]:
        """Return the run ids, of {run id: claim tip}, whose tip is known to be terminal; nothing is fetched."""
        ended = set()
        with self._store.reader() as reader:
            for run_id, oid in oids.items():
                try:
                    claim, _ = self._one(reader, oid)
                except BusError:
                    continue
                if claim.state == "terminal" and claim.id == run_id and not self._standing(run_id, (oid,)).refused:
                    ended.add(run_id)
        return ended

    def raw(self, chain: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
        """Return (commit object, claim JSON) of each commit."""
        found = []
        with self._store.reader() as reader:
            for oid in chain:
                data = reader.read(oid, "commit", commits.COMMIT_MAX_BYTES)
                claim, _ = self._one(reader, oid)
                found.append((data, claim.canonical()))
                if commits.read_entries(reader, commits.read_commit(reader, oid).tree)[commits.CLAIM_FILE].oid != (
                    blob(claim.canonical()).oid
                ):
                    raise BusError(f"claim {oid[:12]} is not stored as canonical bytes")
        return tuple(found)

    def _standing(self, run_id: str, chain: tuple[str, ...]) -> SignatureState:
        """Return what the seals of a chain that was read come to: its tip's, which binds what it follows.

        What a signed claim holds, only a signed claim moves on; who can check no signature asks that there be one.
        """
        tip = self._seal_of(run_id, chain[-1])
        if tip.state != "unproven" or not self._sealing.asking:
            return tip
        sealed = [oid for oid in chain[:-1] if self._is_sealed(oid)]
        if self._sealing.judging:
            held = any(self._seal_of(run_id, oid).state == "verified" for oid in sealed)
        else:
            held = bool(sealed) and not self._is_sealed(chain[-1])
        return SignatureState("refused", "an unsigned claim follows a signed one") if held else tip

    def _is_sealed(self, oid: str) -> bool:
        return seal_in(self._read[oid][1].message) is not None

    def _seal_of(self, run_id: str, oid: str) -> SignatureState:
        claim, head = self._read[oid]
        ref, seal = names.claim_ref(self._prefix, run_id), seal_in(head.message)
        standing = self._sealing.judge("claim", ref, oid, runner=claim.runner, head=head, record=claim)
        # The same statement in another commit would be a tip that its owner never wrote.
        if standing.state == "verified" and commits.claim_commit(claim, head.parents, seal)[0].oid != oid:
            return SignatureState("refused", "a signed claim in a commit that its runner did not make")
        return standing

    def _is_displaced(self, held: HeldClaim, tip: str) -> bool:
        """Return whether a tip took a signed claim's place without being a signed claim that may."""
        claim, head = self._read.get(held.oid, (None, None))
        if claim is None or head is None or self._seal_of(held.claim.id, held.oid).state != "verified":
            return False
        if tip in held.chain:
            return True  # set back: the remote had a later one from us
        try:
            view = self.read(held.claim.id, tip)
        except RemoteError:
            return False
        except BusError:
            return True  # no claim chain of this run
        return view is None or view.standing.state != "verified"

    def _one(self, reader: Reader, oid: str) -> tuple[Claim, Commit]:
        known = self._read.get(oid)
        if known is None:
            known = self._read[oid] = commits.read_record(reader, oid, commits.CLAIM_FILE, Claim)
        return known

    def _move(
        self, claim: Claim, parents: tuple[str, ...], expect: str | None, along: list[RefUpdate]
    ) -> tuple[str, dict[str, SwapResult]]:
        ref = names.claim_ref(self._prefix, claim.id)
        seal = self._sealing.sign("claim", ref, claim.runner, parents, claim)
        head, objects = commits.claim_commit(claim, parents, seal)
        self._store.write(objects)
        outcomes = swap(self._store, [RefUpdate(ref, head.oid, expect), *along], authority=ref)
        if outcomes[ref].landed:
            self._read[head.oid] = (claim, parse_commit(head.data))
        return head.oid, dict(outcomes)


def _check_chain(run_id: str, history: list[Claim]) -> None:
    if history[0].id != run_id:
        raise BusError(f"the claim ref of run {run_id} holds a claim of run {history[0].id}")
    check_first(history[0])
    for before, after in pairwise(history):
        check_next(before, after)
