"""A sweep: one line whose parameters have several values, sent as one request a combination and repeat.

The same line goes on with a sweep of it that is not through, and sends nothing twice. Knows requests, no screen.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.client.clone.run_ids import LAST, resolve
from bridge.client.clone.store import Sent, Store
from bridge.client.connection.session import BusSession
from bridge.client.connection.signing import identity_of
from bridge.client.send.draft import ANY_REF, RequestDraft, request_of
from bridge.client.send.parameters import untyped
from bridge.client.send.submit import Sending, check_takers, pushed, written_down
from bridge.errors import ParameterError, RunNotFoundError, UsageError
from bridge.ids import new_id, short
from bridge.limits import EXPIRY_MAX_S, SWEEP_MAX_COUNT
from bridge.presets.model import Preset
from bridge.presets.parameters import ChoiceParameter, FlagParameter, FloatParameter, IntParameter
from bridge.records.request import Request, SweepPlace
from bridge.request import expired

_ANY_ID: Final = "0" * 26


@dataclass(frozen=True)
class SweepSlot:
    """One run of a sweep.

    Attributes:
        draft: what it is to ask.
        standing: the request that stands for it, None where there is none yet.
        first: whether this command wrote that request down, so that nobody can have sent it before.
    """

    draft: RequestDraft
    standing: Sending | None
    first: bool = False


def combinations(preset: Preset | None, texts: Mapping[str, Sequence[str]], repeats: int) -> list[dict[str, str]]:
    """Return every combination of the values that the parameters of a command line list, in order.

    A parameter that is given several times lists one value each time. Given once, a number, choice or flag lists
    values with commas; in any other text a comma is a comma.

    Args:
        preset: None where only its host knows it: then a list of numbers or flags is one.
        texts: the parameters as they were typed, each as often as it was given.
        repeats: how often each is to run.

    Raises:
        ParameterError: a list has an empty value, or one twice.
        UsageError: these are no runs at all, or more than a sweep has.
    """
    listed = {name: _values(preset, name, given) for name, given in texts.items()}
    _check_size(math.prod(len(values) for values in listed.values()), repeats)
    return [dict(zip(listed, chosen, strict=True)) for chosen in itertools.product(*listed.values())]


def _values(preset: Preset | None, name: str, given: Sequence[str]) -> tuple[str, ...]:
    values = tuple(given) if len(given) > 1 else _of_text(preset, name, given[0])
    if len(set(values)) < len(values):
        raise ParameterError(f"parameter {name!r}: got {', '.join(given)[:64]!r}, which lists a value twice")
    return values


def _of_text(preset: Preset | None, name: str, text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if len(parts) == 1 or not _lists(preset, name, text, parts):
        return (text,)
    if "" in parts:
        raise ParameterError(f"parameter {name!r}: got {text[:64]!r}, which lists an empty value")
    return parts


def _lists(preset: Preset | None, name: str, text: str, parts: Sequence[str]) -> bool:
    """Whether a text is a list of values."""
    if preset is None:
        return not any(isinstance(untyped({name: part})[name], str) for part in parts)
    parameter = preset.params.get(name)
    if isinstance(parameter, ChoiceParameter):
        return text not in parameter.choices
    return isinstance(parameter, IntParameter | FloatParameter | FlagParameter)


def _check_size(points: int, repeats: int) -> None:
    if repeats < 1:
        raise UsageError(f"got --repeat {repeats}; expected 1 to {SWEEP_MAX_COUNT}")
    if points * repeats > SWEEP_MAX_COUNT:
        raise UsageError(
            f"{points} combinations, {repeats} times each, are {points * repeats} runs; a sweep has at most "
            f"{SWEEP_MAX_COUNT}",
            remedy="list fewer values, or send it in parts",
        )


def validity_s(given_s: float | None, count: int) -> float | None:
    """Return for how long the requests of a line are valid, None for the usual time.

    A host takes so many an hour from one sender, so the last ones of a sweep may wait.
    """
    return float(EXPIRY_MAX_S) if given_s is None and count > 1 else given_s


def place_drafts(session: BusSession, drafts: Sequence[RequestDraft], repeats: int, *, new: bool) -> list[RequestDraft]:
    """Return a draft for each request of a sweep: all combinations once, then again.

    Args:
        session: the bus, and what this clone sent to it.
        drafts: one a combination.
        repeats: how often each runs.
        new: begin another sweep although one of this line is not through.

    Raises:
        ParameterError: two combinations are the same, e.g. 0.1 and 0.10.
    """
    if len({_key(session, draft) for draft in drafts}) < len(drafts):
        raise ParameterError("two of the combinations are the same values written in two ways")
    sweep_id = None if new else _unfinished(session, drafts, repeats)
    if sweep_id is None:
        sweep_id = new_id(int(session.clock.now().timestamp() * 1000), os.urandom(10))
    return _placed(drafts, repeats, sweep_id)


def refuse_options(given: Mapping[str, object]) -> None:
    """Refuse options that are about one run.

    Args:
        given: their values by name.

    Raises:
        UsageError: one of them was given.
    """
    for name, value in given.items():
        if value:
            raise UsageError(f"--{name} is for one run, and this line asks for several", remedy=f"leave --{name} out")


def decide(
    session: BusSession, drafts: Sequence[RequestDraft], repeats: int, *, new: bool, queue: bool,
    warn: Callable[[str], None],
) -> list[SweepSlot]:  # fmt: skip
    """Return the places of a sweep, each with its request, written down before the first is sent.

    The same line asked twice at once, as by an agent's tools, is so one sweep.

    Args:
        session: the bus, and what this clone sent to it.
        drafts: one a combination.
        repeats: how often each runs.
        new: begin another sweep although one of this line is not through.
        queue: whether to send it although no live runner would take it.
        warn: takes a line about what the host will refuse.

    Raises:
        ParameterError: two combinations are the same, e.g. 0.1 and 0.10.
        NoRunnerError: no live runner would take it; the message names every runner and why not.
    """
    with session.store.deciding(session.clock):
        slots = _slots_of(session, place_drafts(session, drafts, repeats, new=new))
        lacking = next((slot.draft for slot in slots if slot.standing is None or not slot.standing.reattached), None)
        if lacking is not None:  # what is on the bus needs no runner that is awake
            check_takers(session, lacking, queue=queue, warn=warn)
        return [
            SweepSlot(slot.draft, written_down(session, slot.draft), first=True) if slot.standing is None else slot
            for slot in slots
        ]


def id_of(placed: Sequence[RequestDraft]) -> str:
    """Return the id that the drafts of a sweep share."""
    return next(draft.sweep.id for draft in placed if draft.sweep is not None)


def _placed(drafts: Sequence[RequestDraft], repeats: int, sweep_id: str) -> list[RequestDraft]:
    count = len(drafts) * repeats
    return [
        replace(draft, sweep=SweepPlace(id=sweep_id, repeat=repeat, count=count, cells=len(drafts)))
        for repeat in range(repeats)
        for draft in drafts
    ]


def _unfinished(session: BusSession, drafts: Sequence[RequestDraft], repeats: int) -> str | None:
    """Return the newest sweep of these very drafts that has a run to send or a result to fetch."""
    sweeps: dict[str, dict[str, str]] = {}
    for sent, request in sent_in_sweeps(session):
        if request.preset == drafts[0].preset and request.sweep is not None:
            sweeps.setdefault(request.sweep.id, {}).setdefault(request.idempotency_key, sent.id)
    for sweep_id in sorted(sweeps, reverse=True):
        keys, sent_keys = {_key(session, draft) for draft in _placed(drafts, repeats, sweep_id)}, sweeps[sweep_id]
        through = keys == sent_keys.keys() and all(session.store.has_result(run_id) for run_id in sent_keys.values())
        if sent_keys.keys() <= keys and not through:
            return sweep_id
    return None


def sent_in_sweeps(session: BusSession) -> list[tuple[Sent, Request]]:
    """Return the requests that this clone sent to this bus as parts of sweeps, newest first."""
    every = ((sent, sent.request()) for sent in session.store.all_sent() if sent.bus_id == session.record.bus_id)
    return [(sent, request) for sent, request in every if request.sweep is not None]


def _slots_of(session: BusSession, drafts: Sequence[RequestDraft]) -> list[SweepSlot]:
    """Return the places of a sweep, each with the request that this clone sent for it before."""
    sent_before: dict[str, tuple[Sent, Request]] = {}
    for sent, request in sent_in_sweeps(session):
        sent_before.setdefault(request.idempotency_key, (sent, request))
    matches = ((draft, sent_before.get(_key(session, draft))) for draft in drafts)
    return [SweepSlot(draft, None if before is None else _standing(session, *before)) for draft, before in matches]


def send_all(session: BusSession, slots: Sequence[SweepSlot], warn: Callable[[str], None]) -> Iterator[Sending]:
    """Send what is not on the bus of a sweep, and yield the request of each place.

    Args:
        session: the bus.
        slots: the places of the sweep.
        warn: takes a line about where requests go.

    Raises:
        RemoteError: the push failed; the same line goes on with the same id.
    """
    for slot in slots:
        if slot.standing is not None:
            yield pushed(session, slot.standing, first=slot.first, warn=warn)


def _standing(session: BusSession, sent: Sent, request: Request) -> Sending | None:
    """Return a request that was sent before as it stands on the bus; None where no runner will take it any more."""
    if session.store.has_result(sent.id):
        return Sending(sent, request, reattached=True)
    view = session.view(sent.id)
    if view.claim is None and expired(request, session.clock.now()):
        return None
    return Sending(sent, request, reattached=view.request is not None or view.claim is not None)


def _key(session: BusSession, draft: RequestDraft) -> str:
    who, now = identity_of(session), session.clock.now()
    return request_of(draft, _ANY_ID, session.record.bus_id, ANY_REF, now, who=who).idempotency_key


def runs_of(session: BusSession, sweep_id: str) -> list[str]:
    """Return the newest run of each place of a sweep that this clone sent, in the order they were sent."""
    newest: dict[str, str] = {}
    for sent, request in sent_in_sweeps(session):
        if request.sweep is not None and request.sweep.id == sweep_id:
            newest.setdefault(request.idempotency_key, sent.id)
    return sorted(newest.values())


def sent_sweep(store: Store, text: str) -> tuple[str, str] | None:
    """Return the sweep of a text that is its id or a part of it, and a run of it; None where no such sweep was sent."""
    every = ((sent.id, sent.request().sweep) for sent in store.all_sent())
    runs = {place.id: run_id for run_id, place in every if place is not None}
    sweep_id = _called(text, runs)
    return None if sweep_id is None else (sweep_id, runs[sweep_id])


def sent_set(store: Store, text: str) -> list[str] | None:
    """Return the newest run of each sitting of a set, in the order of their numbers; None where a text is no set's id.

    Args:
        store: of this clone, which sent them.
        text: the set's id or a part of it.
    """
    requests = [(sent.id, sent.request()) for sent in store.all_sent()]
    places = {run_id: request.sweep for run_id, request in requests if request.profile == "standing" and request.sweep}
    set_id = _called(text, {place.id for place in places.values()})
    newest: dict[int, str] = {}
    for run_id in sorted(run_id for run_id, place in places.items() if place.id == set_id):
        newest[places[run_id].repeat] = run_id
    return [newest[number] for number in sorted(newest)] or None


def find_sweep(session: BusSession, text: str) -> str:
    """Return the sweep that a text means: its own id or a part of it, or a run of it, as ``@last`` is one.

    Raises:
        RunNotFoundError: this clone sent no such sweep.
    """
    sent = sent_in_sweeps(session)
    by_run = {sent_run.id: request.sweep.id for sent_run, request in sent if request.sweep is not None}
    if (sweep_id := _called(text, by_run.values())) is not None:
        return sweep_id
    try:
        run_id = session.find(text)
    except RunNotFoundError as error:
        raise RunNotFoundError(f"{error.message}, and no sweep that was sent from here", remedy=error.remedy) from error
    if run_id not in by_run:
        raise RunNotFoundError(
            f"{short(run_id)} is no run of a sweep that was sent from here",
            remedy="kakeya-mac compare A B puts two runs side by side",
        )
    return by_run[run_id]


def _called(text: str, sweeps: Collection[str]) -> str | None:
    """Return the sweep whose id, or a part of it, a text is; ``@last`` is a run."""
    if text.lower() == LAST:
        return None
    try:
        sweep_id = resolve(text, set(sweeps), tuple)
    except (RunNotFoundError, UsageError):
        return None
    return sweep_id if sweep_id in sweeps else None
