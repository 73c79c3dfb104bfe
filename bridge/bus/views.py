"""The values that a bus returns and takes: requests and claims by commit, a listing, a view of a run, a result.

Frozen values; the records inside them are in `bridge.records`. Knows no transport.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from bridge.ids import new_id
from bridge.limits import CLOCK_SKEW_MAX_S
from bridge.trust.judgement import UNCHECKED, TrustAnswer

if TYPE_CHECKING:
    from bridge.records.claim import Claim, Delivery
    from bridge.records.logs import LogHead
    from bridge.trust.seals import Refused

CHARS: Final = 5  # of an id: its ids span 2**25 ms, a little more than nine hours
_FRESH_CHARS: Final = 6  # and with one more 2**20 ms, some 17 minutes
RECENT_S: Final = 2 * 24 * 3600.0
_FRESH_S: Final = CLOCK_SKEW_MAX_S


@dataclass(frozen=True)
class RequestRef:
    """A pushed request: its id (from the branch name), full ref name, and the commit it points to."""

    id: str
    ref: str
    oid: str


@dataclass(frozen=True)
class ReceivedRequest:
    """Untrusted bytes as they were pushed; `signature` is the sibling blob, or None."""

    ref: RequestRef
    data: bytes
    signature: bytes | None


@dataclass(frozen=True)
class ReadRequests:
    """What was found at many request branches, by commit; those that are in none of the three were not read yet.

    Attributes:
        received: their bytes.
        rejected: why what is there is no request.
        done: those that carry a result already.
    """

    received: Mapping[str, ReceivedRequest]
    rejected: Mapping[str, str]
    done: frozenset[str]


@dataclass(frozen=True)
class Snapshot:
    """One listing of the bus: what exists now, nothing fetched.

    Attributes:
        requests: pushed requests, oldest id first, those that already carry a result left out where that is known.
        claims: claim ref tips by run id.
        cancels: run ids with a cancel branch.
        beacons: beacon ref tips by runner name.
        bytes_received: what this listing cost on the wire, 0 when unknown.
        unasked: whether the remote sent all of its refs, whatever was asked for, as git's protocol v0 does.
    """

    requests: tuple[RequestRef, ...]
    claims: Mapping[str, str]
    cancels: frozenset[str]
    beacons: Mapping[str, str]
    bytes_received: int = 0
    unasked: bool = False


@dataclass(frozen=True)
class HeldClaim:
    """A claim this runner owns: the tip it may replace and the chain up to it (commit ids, oldest first).

    `amends` says whether a renewal of a renewal takes its place on this bus.
    """

    oid: str
    claim: Claim
    chain: tuple[str, ...]
    amends: bool = True


@dataclass(frozen=True)
class ClaimTip:
    """The newest claim of a run without its chain: its commit, its record, and what its signature is worth here."""

    oid: str
    claim: Claim
    sealed: bool
    signature: TrustAnswer


@dataclass(frozen=True)
class Neighbours:
    """The runs of one runner that were asked for nearest to one.

    Attributes:
        claims: their claim commits, by run id, nearest first.
        looked: how many claims of the bus were looked at for them, nearest first.
        left: how many were not, although fewer runs were found than wanted.
    """

    claims: Mapping[str, str]
    looked: int
    left: int


@dataclass(frozen=True)
class ArchivedClaim:
    """The claim that ended an archived run, the run's request branch as it was, and the archive: its ref and commit."""

    ref: str | None
    tip: ClaimTip
    archive: str
    archive_oid: str


@dataclass(frozen=True)
class ClaimView:
    """A claim chain as an observer reads it: tip, its record, and all records oldest first.

    `sealed` says whether its tip carries a signature, `signature` whether this reader accepts it. `archived_at` is when
    another runner archived it, seconds since the epoch; only asked where the key was revoked.
    """

    oid: str
    claim: Claim
    history: tuple[Claim, ...]
    chain: tuple[str, ...]
    sealed: bool = False
    signature: TrustAnswer = UNCHECKED
    amends: bool = True
    archived_at: float | None = None

    def held(self) -> HeldClaim:
        """Return it as a claim that may be moved on."""
        return HeldClaim(self.oid, self.claim, self.chain, self.amends)


@dataclass(frozen=True)
class LogChunk:
    """A piece of a live log; `data` is untrusted."""

    head: LogHead
    data: bytes


@dataclass(frozen=True)
class RunView:
    """Everything a client can know of a run without reading its result.

    `claim` is one whose signature is not refused; `ignored` names one that was refused. `namesakes` are the other
    request branches with its id, while no claim says which one is the run's.
    """

    request: RequestRef | None
    claim: ClaimView | None
    log: str | None
    delivery: Delivery | None
    cancel_asked: bool
    ignored: Refused | None = None
    namesakes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkloadCommit:
    """A commit as git hashes it (without git's header), and its tree with `.mac-bridge` taken out."""

    raw: bytes
    tree: str


@dataclass(frozen=True)
class Submission:
    """The outcome of `submit`: the branch commit, and whether the branch existed already with the same bytes."""

    ref: RequestRef
    reattached: bool


@dataclass(frozen=True)
class ListingWindow:
    """What a listing is restricted to.

    Attributes:
        now_ms: the present, milliseconds since the epoch.
        presets: names of presets whose requests are looked for.
        runs: ids of runs that are listed whatever their age.
        refs: full names of request branches whose runs are listed whatever their age.
        fresh: whether only the last minutes are listed beside those, not the last two days.
    """

    now_ms: int
    presets: Collection[str]
    runs: Collection[str] = ()
    refs: Collection[str] = ()
    fresh: bool = False

    def beginnings(self) -> tuple[str, ...]:
        """Return how the ids of the window begin, a clock that is a little ahead included."""
        back_s, chars = (_FRESH_S, _FRESH_CHARS) if self.fresh else (RECENT_S, CHARS)
        span_ms = 1 << (5 * (10 - chars))
        first = max(0, self.now_ms - int(back_s * 1000)) // span_ms
        last = (self.now_ms + int(CLOCK_SKEW_MAX_S * 1000)) // span_ms
        return tuple(new_id(number * span_ms, bytes(10))[:chars] for number in range(first, last + 1))


@dataclass(frozen=True)
class DamagedRef:
    """A ref whose commit, or what that reaches, the remote does not give whole.

    Attributes:
        why: the remote's words.
        tip: whether its own commit is ``lost`` there, or ``unreadable``, or only what that reaches is not ``whole``.
        is_here: whether this machine has it whole.
        restored: whether the remote gives it whole again.
        gone: whether the ref was deleted, so that others can be pushed again.
        refusal: the remote's words where it did not delete it.
    """

    ref: str
    oid: str
    why: str
    tip: Literal["unreadable", "lost", "whole"] = "unreadable"
    is_here: bool = False
    restored: bool = False
    gone: bool = False
    refusal: str = ""


@dataclass(frozen=True)
class BadRef:
    """A ref that can never be read or is in the way of others, where it points, and why.

    Attributes:
        gone: whether it was deleted there.
        by_hand: the command with which a person deletes it, where it is not ours to delete.
        refusal: the remote's words where it did not delete it.
    """

    ref: str
    oid: str
    why: str
    gone: bool = False
    by_hand: str | None = None
    refusal: str = ""


@dataclass(frozen=True)
class PrefixTrial:
    """What a remote does with the refs below one prefix.

    Attributes:
        moves: whether a ref may move to a commit that does not descend from its tip.
        deletes: whether a ref may be deleted.
    """

    prefix: str
    moves: bool
    deletes: bool

    @property
    def renewals(self) -> Literal["amend", "chain"]:
        """How a claim is renewed there."""
        return "amend" if self.moves else "chain"


@dataclass(frozen=True)
class Placement:
    """Where a bus keeps its refs on a remote, and why not at the usual place.

    Attributes:
        refused: the host's own words for the usual prefix; empty where that is taken.
    """

    trial: PrefixTrial
    refused: str = ""

    def lines(self) -> Iterator[str]:
        """Yield what the maker of a bus has to know of another prefix than the usual one."""
        if self.refused:
            yield (
                f"the remote takes no refs outside refs/heads/, so this bus keeps its own below {self.trial.prefix}: "
                f"every plain clone fetches them, and CI for all branches sees them ({self.refused})"
            )
            yield "leave them out there: GitHub Actions branches-ignore: ['kakeya/**', '**mac-bridge**']"
            yield "and in clones: git config --add remote.origin.fetch '^refs/heads/kakeya/*'"
