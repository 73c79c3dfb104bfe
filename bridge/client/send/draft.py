"""The draft of a request: a command line, typed by the installed preset or by the host that alone knows the preset."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import ValidationError

from bridge.bus.refs.names import accepts
from bridge.client.connection.branches import template_for
from bridge.client.connection.liveness import SeenRunner
from bridge.client.connection.session import BusSession
from bridge.client.connection.signing import SigningIdentity
from bridge.client.send.parameters import untyped
from bridge.durations import duration_text
from bridge.errors import PresetNotFoundError, UsageError
from bridge.ids import new_id
from bridge.limits import EXPIRY_DEFAULT_S, EXPIRY_MAX_S
from bridge.presets.installed import registry
from bridge.presets.model import Preset
from bridge.presets.parameters import bind
from bridge.records.base import ParamValue
from bridge.records.request import (
    DrawnLoad,
    EffectWord,
    LimitRequest,
    Profile,
    Request,
    RunnerSelector,
    SweepPlace,
    Workload,
)
from bridge.request import UNSIGNED, key_of, parse, request_branch
from bridge.system.clock import rfc3339

ANY_REF: Final = "refs/heads/any"
"""In the place of a branch where only the key of a request is asked for, of which the branch is no part."""
_NO_KEY: Final = "0" * 64


@dataclass(frozen=True)
class RequestDraft:
    """The fields of a request that the user decides, typed.

    Attributes:
        params: every parameter of the preset, given or default.
        workload: the code that is sent along, or None.
        expires_s: validity.
        confirms: the run whose result it is to confirm, or None.
        unsandboxed: run without a sandbox; on this machine only.
        sweep: its place in a sweep, or None.
        asks: the word that its ratio is asked for, or None for its number.
        load: whether its host holds processors in drawn launches, or None.
    """

    preset: str
    params: Mapping[str, ParamValue]
    profile: Profile
    workload: Workload | None = None
    runner: RunnerSelector = field(default_factory=RunnerSelector)
    limits: LimitRequest = field(default_factory=LimitRequest)
    expires_s: float = EXPIRY_DEFAULT_S
    retry_of: str | None = None
    confirms: str | None = None
    unsandboxed: bool = False
    sweep: SweepPlace | None = None
    asks: EffectWord | None = None
    load: DrawnLoad | None = None


def draft_of_preset(
    preset: Preset, values: Mapping[str, ParamValue], profile: Profile, *, workload: Workload | None,
    runner: RunnerSelector, expires_s: float | None,
) -> RequestDraft:  # fmt: skip
    """Return the draft of a request for an installed preset.

    Raises:
        UsageError: the preset is planned, has no such profile, or the validity is out of bounds.
        ParameterError: a parameter does not fit.
    """
    if preset.status != "ready":
        raise UsageError(f"preset {preset.name!r} is planned, not built yet", remedy="kakeya-mac presets")
    if profile not in preset.offered_profiles:
        offered = ", ".join(preset.offered_profiles)
        raise UsageError(f"preset {preset.name!r} has no profile {profile!r}; it has: {offered}")
    valid_s = _validity_s(expires_s)
    bound = bind(preset.params, values)
    return RequestDraft(preset.name, bound, profile, workload=workload, runner=runner, expires_s=valid_s)


def draft_of_offer(
    name: str, texts: dict[str, str], profile: Profile, *, workload: Workload | None, runner: RunnerSelector,
    expires_s: float | None,
) -> RequestDraft:  # fmt: skip
    """Return the draft of a request for a preset that is not installed here; its host checks the parameters.

    Raises:
        UsageError: the validity is out of bounds.
    """
    valid_s = _validity_s(expires_s)
    return RequestDraft(name, untyped(texts), profile, workload=workload, runner=runner, expires_s=valid_s)


def without_sandbox(session: BusSession, draft: RequestDraft) -> RequestDraft:
    """Return the draft of a request that runs without a sandbox.

    Raises:
        UsageError: it would go to a bus, whose host's owner alone decides what is confined.
    """
    if not session.embedded:
        raise UsageError(
            f"--unsandboxed is for your own machine; the owner of {session.bus.route} decides there",
            remedy="leave it out, or add --bus embedded to run here",
        )
    return replace(draft, unsandboxed=True)


def _validity_s(expires_s: float | None) -> float:
    valid_s = float(EXPIRY_DEFAULT_S) if expires_s is None else expires_s
    if not 1 <= valid_s <= EXPIRY_MAX_S:
        raise UsageError(f"got --expires {duration_text(valid_s)}; expected 1s to {duration_text(EXPIRY_MAX_S)}")
    return valid_s


def offering(session: BusSession, name: str, *, queued: bool = False) -> SeenRunner:
    """Return a runner that lists a preset which is not installed here, a live one where there is one.

    Args:
        session: the bus.
        name: the preset.
        queued: whether the request may wait for a host that is away: then its last word counts.

    Raises:
        PresetNotFoundError: none does; the message names what is installed and what runners offer beside it, and
            says where no runner has shown itself.
    """
    runners = [runner for runner in session.runners() if runner.live or queued]
    offering_runner = next((runner for runner in runners if name in runner.beacon.presets), None)
    if offering_runner is not None:
        return offering_runner
    elsewhere = {preset for runner in runners for preset in runner.beacon.presets}
    error = PresetNotFoundError(name, (*sorted(elsewhere - {*registry()}), *registry()))
    if not runners:
        error.remedy = f"{error.remedy}; no runner has shown itself yet, and one that was just started soon does"
    raise error


def parse_selector(text: str | None) -> RunnerSelector:
    """Return the runner selector of ``--runner``: ``name:mini``, a bare name, or labels: ``gpu,quiet``, ``gpu,``.

    Raises:
        UsageError: not names.
    """
    if text is None:
        return RunnerSelector()
    words = [word.strip() for word in text.split(",")]
    try:
        if len(words) == 1 or text.startswith("name:"):
            return RunnerSelector(name=text.removeprefix("name:").strip())
        return RunnerSelector(labels=tuple(sorted(set(words if words[-1] else words[:-1]))))
    except ValidationError as error:
        raise UsageError(
            f"got --runner {text[:60]!r}; expected a runner's name, or labels such as gpu,quiet: "
            "small letters, digits, '.', '_' and '-'",
            remedy="kakeya-mac runners",
        ) from error


def choose_runner(session: BusSession, text: str | None) -> RunnerSelector:
    """Return the runner selector of ``--runner``, where a word of which no runner is the name may be a label.

    Raises:
        UsageError: not names.
    """
    selector = parse_selector(text)
    if text is None or selector.name is None or text.startswith("name:"):
        return selector
    beacons = [runner.beacon for runner in session.runners()]
    if any(beacon.runner == selector.name for beacon in beacons):
        return selector
    if any(selector.name in beacon.labels for beacon in beacons):
        return RunnerSelector(labels=(selector.name,))
    return selector


def build(session: BusSession, draft: RequestDraft, who: SigningIdentity | None = None) -> Request:
    """Return a fresh request from a draft; nothing is sent.

    Args:
        session: the bus.
        draft: its fields.
        who: who signs it, None for an unsigned request.

    Raises:
        UsageError: the branch it would go to is not one this bus accepts.
    """
    now = session.clock.now()
    run_id = new_id(int(now.timestamp() * 1000), os.urandom(10))
    key = request_of(draft, run_id, session.record.bus_id, ANY_REF, now, who=who).idempotency_key
    ref = request_branch(template_for(session), draft.preset, run_id, key)
    if not accepts(session.record.request_branches, ref):
        raise UsageError(
            f"this bus takes requests on {', '.join(session.record.request_branches)}, not on {ref!r}",
            remedy="on the host: kakeya-runner bus allow-branches SPACE; here: kakeya-mac init --branch-template TEXT",
        )
    request = request_of(draft, run_id, session.record.bus_id, ref, now, who=who)
    # What the host would refuse is refused here, before anything is pushed.
    return parse(request.canonical(), ref=ref, bus_id=session.record.bus_id, now=now)


def request_of(
    draft: RequestDraft, run_id: str, bus_id: str, ref: str, now: dt.datetime, *, who: SigningIdentity | None
) -> Request:
    """Return the request with the fields of a draft, under the key that the same question always has."""
    request = Request(
        id=run_id,
        bus_id=bus_id,
        ref=ref,
        principal=UNSIGNED if who is None else who.principal,
        signer=None if who is None else who.fingerprint,
        preset=draft.preset,
        params=dict(draft.params),
        profile=draft.profile,
        workload=draft.workload,
        runner=draft.runner,
        limits=draft.limits,
        created=rfc3339(now),
        expires=rfc3339(now + dt.timedelta(seconds=draft.expires_s)),
        idempotency_key=_NO_KEY,
        retry_of=draft.retry_of,
        confirms=draft.confirms,
        unsandboxed=draft.unsandboxed,
        sweep=draft.sweep,
        asks=draft.asks,
        load=draft.load,
    )
    return request.evolve(idempotency_key=key_of(request))
