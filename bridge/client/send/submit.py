"""Send a request, once: the same wish while it is live is the same run.

Order: build the bytes, look for a live run with the same key, remember the bytes, push. A client killed anywhere goes
on from there when the same command is run again.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.bus.refs.names import accepts, request_branch
from bridge.bus.views import RunView
from bridge.client.clone.store import Sent
from bridge.client.connection.session import BusSession
from bridge.client.run.follow import state_of_view
from bridge.client.connection.signing import SigningIdentity, identity_of
from bridge.errors import FencedError, RequestRejectedError, UsageError
from bridge.ids import is_id, new_id
from bridge.limits import EXPIRY_DEFAULT_S, EXPIRY_MAX_S
from bridge.presets import Preset
from bridge.presets.parameters import bind
from bridge.records import LimitRequest, Request, RunnerSelector, Workload
from bridge.records.base import ParamValue
from bridge.records.request import Profile
from bridge.request import DEFAULT_TEMPLATE, UNSIGNED, idempotency_key, parse
from bridge.run.state import RunState
from bridge.system.clock import parse_rfc3339, rfc3339
from bridge.trust.ssh_signatures import made_with

_AGENT_BRANCH: Final = re.compile(r"AgentMemory/.*?(-[0-9a-f]{4,8})?")
_LOOKED_AT: Final = 20  # live requests on the bus that are compared with ours, newest first


@dataclass(frozen=True)
class RequestDraft:
    """What the user asked for, typed.

    Attributes:
        params: every parameter of the preset, given or default.
        workload: the code that is sent along, or None.
        expires_s: validity.
    """

    preset: str
    params: Mapping[str, ParamValue]
    profile: Profile
    workload: Workload | None = None
    runner: RunnerSelector = field(default_factory=RunnerSelector)
    limits: LimitRequest = field(default_factory=LimitRequest)
    expires_s: float = EXPIRY_DEFAULT_S
    retry_of: str | None = None


@dataclass(frozen=True)
class Sending:
    """A request that is on the bus; `reattached` says that it was there before this command."""

    sent: Sent
    request: Request
    reattached: bool


def make_wish(
    preset: Preset, values: Mapping[str, ParamValue], profile: Profile, *, workload: Workload | None,
    runner: RunnerSelector, expires_s: float | None,
) -> RequestDraft:  # fmt: skip
    """Return a wish for a preset.

    Raises:
        UsageError: the preset is planned, has no such profile, or the validity is out of bounds.
        ParameterError: a parameter does not fit.
    """
    if preset.status != "ready":
        raise UsageError(f"preset {preset.name!r} is planned, not built yet", remedy="kakeya-mac presets")
    if profile not in preset.profiles:
        raise UsageError(f"preset {preset.name!r} has no profile {profile!r}; it has: {', '.join(preset.profiles)}")
    valid_s = float(EXPIRY_DEFAULT_S) if expires_s is None else expires_s
    if not 1 <= valid_s <= EXPIRY_MAX_S:
        raise UsageError(f"got --expires {valid_s:g}; expected 1 to {EXPIRY_MAX_S} seconds")
    bound = bind(preset.params, values)
    return RequestDraft(preset.name, bound, profile, workload=workload, runner=runner, expires_s=valid_s)


def parse_selector(text: str | None) -> RunnerSelector:
    """Return the runner selector of ``--runner``: ``name:mini``, one bare name, or labels ``gpu,quiet``.

    Raises:
        UsageError: not names.
    """
    if text is None:
        return RunnerSelector()
    words = [word.strip() for word in text.removeprefix("name:").split(",")]
    if not all(
        word and word.isascii() and word.replace("-", "").replace("_", "").replace(".", "").isalnum() for word in words
    ):
        raise UsageError(f"got --runner {text[:60]!r}; expected a runner's name, or labels such as gpu,quiet")
    if text.startswith("name:") or (len(words) == 1 and not text.endswith(",")):
        return RunnerSelector(name=words[0])
    return RunnerSelector(labels=tuple(sorted(set(words))))


def build(session: BusSession, wish: RequestDraft, who: SigningIdentity | None = None) -> Request:
    """Return a fresh request for a wish; nothing is sent.

    Args:
        session: the bus.
        wish: what is asked for.
        who: who signs it, None for an unsigned request.

    Raises:
        UsageError: the branch it would go to is not one this bus accepts.
    """
    now = session.clock.now()
    run_id = new_id(int(now.timestamp() * 1000), os.urandom(10))
    ref = request_branch(template_for(session), wish.preset, run_id)
    if not accepts(session.record.request_branches, ref):
        raise UsageError(
            f"this bus takes requests on {', '.join(session.record.request_branches)}, not on {ref!r}",
            remedy="kakeya-mac init --branch-template TEXT",
        )
    request = Request(
        id=run_id,
        bus_id=session.record.bus_id,
        ref=ref,
        principal=UNSIGNED if who is None else who.principal,
        signer=None if who is None else who.fingerprint,
        preset=wish.preset,
        params=dict(wish.params),
        profile=wish.profile,
        workload=wish.workload,
        runner=wish.runner,
        limits=wish.limits,
        created=rfc3339(now),
        expires=rfc3339(now + dt.timedelta(seconds=wish.expires_s)),
        idempotency_key=_key(session, wish, who),
        retry_of=wish.retry_of,
    )
    # What the host would refuse is refused here, before anything is pushed.
    return parse(request.canonical(), ref=ref, bus_id=session.record.bus_id, now=now)


def template_for(session: BusSession) -> str:
    """Return the branch template: the configured one, else the namespace of an agent's own branch, else the usual one.

    An agent that may push only below ``AgentMemory/``, with a fixed suffix, is on such a branch already.
    """
    if session.settings.bus.branch_template is not None:
        return session.settings.bus.branch_template
    repository = session.settings.repository
    branch = None if repository is None or session.embedded else repository.current_branch()
    match = _AGENT_BRANCH.fullmatch(branch or "")
    if match is None:
        return DEFAULT_TEMPLATE
    template = f"AgentMemory/mac-bridge-{{preset}}-{{id}}{match[1] or ''}"
    probe = template.replace("{preset}", "x").replace("{id}", "0" * 26)
    return template if accepts(session.record.request_branches, f"refs/heads/{probe}") else DEFAULT_TEMPLATE


def find_live(session: BusSession, wish: RequestDraft) -> Sending | None:
    """Return the live run of the same wish, or None.

    A request that was remembered but never arrived counts: `send` pushes the same bytes under the same id.
    """
    who = identity_of(session)
    key = _key(session, wish, who)
    for sent, request in _same_key(session, key, wish.preset, who):
        view = session.bus.view(sent.id)
        if _live(session, view, request):
            arrived = view.request is not None or view.claim is not None
            return Sending(sent, request, reattached=arrived)
    return None


def send(session: BusSession, wish: RequestDraft, live: Sending | None) -> Sending:
    """Put a request on the bus and return it; a live one of the same wish is returned instead.

    Args:
        session: the bus.
        wish: what to send.
        live: what `find_live` found, None to send another.

    Raises:
        RemoteError: the push failed; running the same command again goes on with the same id.
    """
    if live is not None and live.reattached:
        session.store.remember(live.sent)
        return live
    if live is None:
        who = identity_of(session)
        request = build(session, wish, who)
        data = request.canonical()
        signature = None if who is None else who.sign(data)
        sent = Sent(request.id, request.ref, session.bus.route, request.bus_id, data, signature)
        live = Sending(sent, request, reattached=False)
        session.store.remember(sent)
    session.bus.submit(live.sent.data, live.sent.ref, live.request.workload, live.sent.signature)
    return live


def _key(session: BusSession, wish: RequestDraft, who: SigningIdentity | None) -> str:
    return idempotency_key(
        bus_id=session.record.bus_id,
        principal=UNSIGNED if who is None else who.principal,
        preset=wish.preset,
        params=wish.params,
        profile=wish.profile,
        tree=None if wish.workload is None else wish.workload.tree,
        runner=wish.runner,
        limits=wish.limits,
    )


def _same_key(
    session: BusSession, key: str, preset: str, who: SigningIdentity | None
) -> Iterator[tuple[Sent, Request]]:
    """Yield requests with this key: those sent from here first, then what else is on the bus."""
    known: set[str] = set()
    for sent in session.store.all_sent():
        known.add(sent.id)
        if sent.bus_id == session.record.bus_id and (request := sent.request()).idempotency_key == key:
            yield sent, request
    refs = [
        ref
        for ref in session.bus.snapshot().requests
        if ref.id not in known and is_id(ref.id) and f"{preset}-{ref.id}" in ref.ref
    ]
    for ref in sorted(refs, key=lambda one: one.id, reverse=True)[:_LOOKED_AT]:
        try:
            received = session.bus.read_request(ref)
            # parse recomputes the key from the fields, so a stranger cannot lend us another question's run.
            request = parse(received.data, ref=ref.ref, bus_id=session.record.bus_id, now=session.clock.now())
        except (RequestRejectedError, FencedError):
            continue
        signed_by = None if received.signature is None else made_with(received.data, received.signature)
        # Nor can a stranger lend us a request in our name: it must be signed with our own key.
        if request.idempotency_key == key and signed_by == (None if who is None else who.fingerprint):
            found = Sent(ref.id, ref.ref, session.bus.route, session.record.bus_id, received.data, received.signature)
            yield found, request


def _live(session: BusSession, view: RunView, request: Request) -> bool:
    state = state_of_view(view)
    if state.terminal:
        return False
    if state in {RunState.QUEUED, RunState.UNKNOWN}:
        return parse_rfc3339(request.expires) > session.clock.now()
    return True
