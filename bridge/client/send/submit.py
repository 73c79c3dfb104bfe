"""Send a request once: the same draft while its run is live is the same run.

Order: build the bytes, look for a live run with the same key, remember the bytes, push. A client killed anywhere goes
on from there when the same command is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bridge.bus.views import ListingWindow, RunView
from bridge.client.clone.store import Sent
from bridge.client.connection.branches import other_template, remember_template
from bridge.client.connection.identity import with_setting
from bridge.client.connection.liveness import require_runner
from bridge.client.connection.session import BusSession
from bridge.client.connection.signing import SigningIdentity, identity_of
from bridge.client.run.status import state_of_view
from bridge.client.send.draft import ANY_REF, RequestDraft, build, request_of, without_sandbox
from bridge.client.send.workflows import warnings
from bridge.errors import FencedError, RemoteError, RequestRejectedError
from bridge.ids import is_id
from bridge.records.request import Request
from bridge.request import parse, request_branch
from bridge.request.branches import may_have_key
from bridge.run.state import RunState
from bridge.system.clock import parse_rfc3339
from bridge.trust.ssh_signatures import made_with

_POLL_S: Final = 2.0
_ANY_ID: Final = "0" * 26
_CANDIDATES_COUNT: Final = 3  # requests with a name like ours that are read, newest first; anybody may name one so


@dataclass(frozen=True)
class Sending:
    """A request that is on the bus; `reattached` says that it was there before this command."""

    sent: Sent
    request: Request
    reattached: bool


def submit(
    session: BusSession, draft: RequestDraft, *, new: bool, queue: bool, warn: Callable[[str], None]
) -> Sending:  # fmt: skip
    """Send a request, or attach to the live run of the same draft.

    Args:
        session: the bus.
        draft: what to send.
        new: whether to send it although the same is live.
        queue: whether to send it although no live runner would take it.
        warn: takes a line about what the host will refuse.

    Raises:
        NoRunnerError: no live runner would take it.
        RemoteError: the push failed; running the same command again goes on with the same id.
    """
    with session.store.deciding(session.clock):  # the same asked twice at once, as by an agent's tools, is one run
        live = None if new else find_live(session, draft)
        if live is None or not live.reattached:
            check_takers(session, draft, queue=queue, warn=warn)
        first = live is None
        live = live or written_down(session, draft)
    return pushed(session, live, first=first, warn=warn)


def check_takers(session: BusSession, draft: RequestDraft, *, queue: bool, warn: Callable[[str], None]) -> None:
    """Look before something new is sent whether a runner would take it.

    Args:
        session: the bus.
        draft: what is to be sent.
        queue: whether to send it although no live runner would take it.
        warn: takes a line about what the host will refuse.

    Raises:
        NoRunnerError: no live runner would take it; the message names every runner and why not.
    """
    if not queue:
        require_runner(
            session.bus, session.record, session.clock,
            preset=draft.preset, selector=draft.runner, poll_s=_POLL_S, recent_runners=session.runners,
        )  # fmt: skip
    for line in warnings(session, draft.workload, draft.preset):
        warn(line)


def submit_again(session: BusSession, old: Request, *, queue: bool, warn: Callable[[str], None]) -> Sending:
    """Send a request once more under a new id, naming the one it repeats, or attach to the live run that does so.

    Args:
        session: the bus.
        old: the request, as it was sent.
        queue: whether to send it although no live runner would take it.
        warn: takes a line about what the host will refuse.

    Raises:
        NoRunnerError: no live runner would take it.
        RemoteError: the push failed.
    """
    draft = RequestDraft(
        old.preset,
        old.params,
        old.profile,
        old.workload,
        old.runner,
        old.limits,
        retry_of=old.id,
        confirms=old.confirms,
        sweep=old.sweep,
        asks=old.asks,
        load=old.load,
    )
    draft = without_sandbox(session, draft) if old.unsandboxed else draft
    return submit(session, draft, new=False, queue=queue, warn=warn)


def find_live(session: BusSession, draft: RequestDraft) -> Sending | None:
    """Return the live run of the same draft, or None.

    A request that was remembered but never arrived counts: `pushed` sends the same bytes under the same id.
    """
    who = identity_of(session)
    unsent = request_of(draft, _ANY_ID, session.record.bus_id, ANY_REF, session.clock.now(), who=who)
    key = unsent.idempotency_key  # of neither id nor branch nor time
    for sent, request in _same_key(session, key, draft.preset, who):
        if draft.retry_of not in {None, request.retry_of}:
            continue  # the same question, which repeats no run or another one
        view = session.view(sent.id)
        if _live(session, view, request):
            arrived = view.request is not None or view.claim is not None
            return Sending(sent, request, reattached=arrived)
    return None


def written_down(session: BusSession, draft: RequestDraft) -> Sending:
    """Build a request and write it down: from here on the same draft is this run, whether or not it arrives."""
    who = identity_of(session)
    request = build(session, draft, who)
    return _remembered(session, request, who)


def _remembered(session: BusSession, request: Request, who: SigningIdentity | None) -> Sending:
    """Return a request, signed and written down."""
    data = request.canonical()
    signature = None if who is None else who.sign(data)
    sent = Sent(request.id, request.ref, session.bus.route, request.bus_id, data, signature)
    session.store.remember(sent)
    return Sending(sent, request, reattached=False)


def pushed(session: BusSession, sending: Sending, *, first: bool, warn: Callable[[str], None]) -> Sending:
    """Put a request on the bus unless it is there; `first` says that nobody can have sent it before.

    Where the remote refuses its branch, the configured one, or the space of the agent's own branch, is tried.

    Raises:
        RemoteError: the push failed.
    """
    if sending.reattached:
        session.store.remember(sending.sent)
        return sending
    try:
        session.bus.submit(
            sending.sent.data, sending.sent.ref, sending.request.workload, sending.sent.signature, first=first
        )
    except RemoteError as error:
        template = other_template(session, sending.sent.ref, error)
        if template is None:
            raise with_setting(session, error) from error
        moved = _moved(session, sending, template)
        session.bus.submit(moved.sent.data, moved.sent.ref, moved.request.workload, moved.sent.signature, first=True)
        remember_template(session, template)
        warn(f"the remote refuses {sending.sent.ref}; requests of this clone go to {template} from now on")
        return moved
    return sending


def _moved(session: BusSession, sending: Sending, template: str) -> Sending:
    """Return the same request under the same id for another branch, written down in place of the one before."""
    request = sending.request
    ref = request_branch(template, request.preset, request.id, request.idempotency_key)
    return _remembered(session, request.evolve(ref=ref), identity_of(session))


def _same_key(
    session: BusSession, key: str, preset: str, who: SigningIdentity | None
) -> Iterator[tuple[Sent, Request]]:
    """Yield requests with this key: those sent from here first, then those on the bus that are named so.

    Nothing of any other request is fetched, and of these no more than the request itself.
    """
    read_ids: set[str] = set()
    for sent in session.store.all_sent():
        read_ids.add(sent.id)
        if sent.bus_id == session.record.bus_id and (request := sent.request()).idempotency_key == key:
            yield sent, request
    now = session.clock.now()
    window = ListingWindow(int(now.timestamp() * 1000), (preset,))  # what is older has expired
    refs = [
        ref
        for ref in session.bus.snapshot(window).requests
        if ref.id not in read_ids and is_id(ref.id) and may_have_key(ref.ref, preset, key)
    ]
    for ref in sorted(refs, key=lambda ref: ref.id, reverse=True)[:_CANDIDATES_COUNT]:
        try:
            received = session.bus.peek_request(ref)
            # parse recomputes the key from the fields, so a stranger cannot lend us another question's run.
            request = parse(received.data, ref=ref.ref, bus_id=session.record.bus_id, now=now)
        except (RequestRejectedError, FencedError):
            continue
        signed_by = None if received.signature is None else made_with(received.data, received.signature)
        # Nor can a stranger lend us a request in our name: it must be signed with our own key.
        if request.idempotency_key == key and signed_by == (None if who is None else who.fingerprint):
            received_run = Sent(
                ref.id, ref.ref, session.bus.route, session.record.bus_id, received.data, received.signature
            )
            yield received_run, request


def _live(session: BusSession, view: RunView, request: Request) -> bool:
    state = state_of_view(view)
    if state.terminal or session.store.has_result(request.id):  # it ended, also where its end counts no more
        return False
    if state in {RunState.QUEUED, RunState.UNKNOWN}:
        return parse_rfc3339(request.expires) > session.clock.now()
    return True
