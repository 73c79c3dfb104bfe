"""View one run as its requester: list its refs, find its request branch, and put claim and delivery together.

Reads no claim itself, and knows nothing about results or logs beyond where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bridge.bus.refs import names
from bridge.bus.store.interface import MissingObjectError, RefStore
from bridge.bus.views import ClaimView, RequestRef, RunView
from bridge.errors import ObjectError
from bridge.limits import LOG_MAX_BYTES
from bridge.request import cancelled_id_of, run_id_of
from bridge.trust.seals import Refused

if TYPE_CHECKING:
    from bridge.bus.refs.requests import Requests
    from bridge.bus.store.quarantine import Quarantine
    from bridge.records.bus import BusRecord
    from bridge.records.claim import Delivery

_BOTH_MAX_BYTES: Final = 4 * LOG_MAX_BYTES  # what a log's own reader allows; a claim that needs more has its own


class Runs:
    """Finds runs by their id, and remembers the request branch of each.

    Args:
        store: the remote.
        requests: its request branches.
        quarantine: the objects that are not fetched again.
        listed: returns the refs that an earlier call listed for these prefixes and nobody took; None lists them.
        check_tips: told of the tips of record and root in each listing.
    """

    def __init__(
        self,
        store: RefStore,
        requests: Requests,
        quarantine: Quarantine,
        listed: Callable[[Sequence[str]], Mapping[str, str] | None],
        check_tips: Callable[[str | None, str | None], None],
    ) -> None:
        self._store, self._requests, self._quarantine, self._listed = store, requests, quarantine, listed
        self._check_tips = check_tips
        self._request_refs: dict[str, str] = {}
        self._listed_before: dict[str, Mapping[str, str]] = {}
        self._chosen: dict[str, tuple[tuple[object, ...], RequestRef]] = {}

    def remember(self, run_id: str, ref: str) -> None:
        """Note the request branch of a run that was sent from here."""
        self._request_refs[run_id] = ref

    def request_ref(self, record: BusRecord, run_id: str) -> str | None:
        """Return the full name of a run's request branch, None where there is none."""
        ref = self._request_refs.get(run_id)
        if ref is not None:
            return ref
        branches = self._branches(record, run_id, self._list_for(record, run_id))
        return branches[0].ref if branches else None

    def view(
        self,
        record: BusRecord,
        run_id: str,
        read_claim: Callable[[str, str | None], ClaimView | None],
        read_archived: Callable[[str, RequestRef | None], ClaimView | None],
        *,
        with_log: bool = False,
    ) -> RunView:
        """Return what is known of a run.

        Args:
            record: the bus record.
            run_id: the run.
            read_claim: returns the claim chain of a run that ends in a commit.
            read_archived: returns the claim chain of a run, with this request branch, if it was archived.
            with_log: whether its log is read next, and is fetched in the same call.
        """
        refs = self._list_for(record, run_id, with_log=with_log)
        claim_ref = names.claim_ref(record.prefix, run_id)
        claim_oid = refs.get(claim_ref)
        claim, ignored = None, None
        try:
            claim = None if claim_oid is None else read_claim(run_id, claim_oid)
        except ObjectError as error:
            ignored = Refused("claim", "nobody", claim_ref, claim_oid or "", f"it is no claim: {error.message}")
        if claim is not None and claim.signature.refused:
            signature = claim.signature
            ignored = Refused("claim", claim.claim.runner, claim_ref, claim.oid, signature.why, signature.revoked)
            claim = None
        branches = self._branches(record, run_id, refs)
        if claim is None:
            claim = read_archived(run_id, branches[0] if branches else None)
            if claim is not None and claim.oid == claim_oid and not claim.signature.refused:
                ignored = None  # its key was revoked after another runner archived it
        request = self._which(record, branches, claim)
        delivery: Delivery | None = None
        if claim is not None and claim.claim.result_oid is not None:
            tip = None if request is None else request.oid
            delivery = self._requests.delivery(run_id, claim.claim.request_oid, tip, claim.claim.result_oid)
        return RunView(
            request=request,
            claim=claim,
            log=refs.get(names.log_ref(record.prefix, run_id)),
            delivery=delivery,
            cancel_asked=any(cancelled_id_of(ref) == run_id for ref in refs),
            ignored=ignored,
            namesakes=tuple(branch.ref for branch in branches if claim is None and branch != request),
        )

    def _obtain(self, refs: Mapping[str, str], uses: Mapping[str, str]) -> None:
        """Fetch claim and log of a run at once, unless one of them is no good: then its reader says so."""
        tips = {ref: refs[ref] for ref in uses if ref in refs}
        if len(tips) == len(uses) and all(self._quarantine.allows(use, tips[ref]) for ref, use in uses.items()):
            with suppress(ObjectError, MissingObjectError):
                self._store.obtain(tips, max_bytes=_BOTH_MAX_BYTES)

    def _list_for(self, record: BusRecord, run_id: str, *, with_log: bool = False) -> Mapping[str, str]:
        """List one run's refs; by their exact names once its branch is known, which costs the same on a full bus.

        With its log, claim and log are brought along unless they were no good when they were last seen.
        """
        own = {names.claim_ref(record.prefix, run_id): "claim", names.log_ref(record.prefix, run_id): "log"}
        request_ref = self._request_refs.get(run_id)
        branches = (
            names.listing_prefixes(record.request_branches)
            if request_ref is None
            else (request_ref, names.cancel_prefix(request_ref))
        )
        before, bring = self._listed_before.get(run_id, {}), list[str]()
        listed = None if before else self._listed([*own, *branches])
        if listed is None:
            bring = [ref for ref, use in own.items() if with_log and self._is_brought(ref, use, before)]
            who = [names.bus_ref(record.prefix), names.root_ref(record.prefix)]
            prefixes = [*who, *(ref for ref in own if ref not in bring), *branches]
            listed = self._store.list(prefixes, bring=bring, max_bytes=_BOTH_MAX_BYTES if bring else 0).refs
            self._check_tips(*map(listed.get, who))
        refs = {ref: oid for ref, oid in listed.items() if run_id in ref}
        if with_log:
            self._listed_before[run_id] = refs
        if with_log and len(bring) < len(own):
            self._obtain(refs, own)
        return refs

    def _is_brought(self, ref: str, use: str, before: Mapping[str, str]) -> bool:
        """Return whether a ref comes with its listing: not what was no good, nor beside what only begins like it."""
        longer = any(other != ref and other.startswith(ref) for other in before)
        return not longer and (ref not in before or self._quarantine.allows(use, before[ref]))

    def _branches(self, record: BusRecord, run_id: str, refs: Mapping[str, str]) -> list[RequestRef]:
        """Return the request branches of a run, by name; the only one is remembered."""
        branches = [
            RequestRef(run_id, ref, oid)
            for ref, oid in sorted(refs.items())
            if run_id_of(ref) == run_id and names.accepts(record.request_branches, ref)
        ]
        if len(branches) == 1:
            self._request_refs.setdefault(run_id, branches[0].ref)
        return branches

    def _which(self, record: BusRecord, branches: list[RequestRef], claim: ClaimView | None) -> RequestRef | None:
        """Return the request branch of a run, of several the one that counts."""
        if len(branches) <= 1:
            return branches[0] if branches else None
        run_id, claimed = branches[0].id, None if claim is None else claim.claim.request_oid
        state = (claimed, *branches)
        chosen = self._chosen.get(run_id)
        if chosen is None or chosen[0] != state:
            chosen = self._chosen[run_id] = state, self._requests.which(branches, record.bus_id, claimed)
        return chosen[1]


def prefixes_of(run_id: str, ref: str) -> list[str]:
    """Return the refs of a run whose request branch is known, on a bus whose prefix is not."""
    own = [name(prefix, run_id) for prefix in names.PREFIXES for name in (names.claim_ref, names.log_ref)]
    return [*own, ref, names.cancel_prefix(ref)]
