"""Turn the command line of `run` into a draft: typed by the installed preset, or by the host that alone knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.answer import Answer, Row
from bridge.client.connection.session import BusSession
from bridge.client.connection.signing import identity_of
from bridge.client.document.parts import DryRunData
from bridge.client.send.draft import (
    RequestDraft,
    build,
    choose_runner,
    draft_of_offer,
    draft_of_preset,
    offering,
    parse_selector,
    without_sandbox,
)
from bridge.client.send.offered import compared_with, preset_of
from bridge.client.send.parameters import listed, typed
from bridge.client.send.submit import find_live
from bridge.client.send.sweep import combinations, validity_s
from bridge.client.send.workload import choose_workload, name_commits, send_code
from bridge.errors import ParameterError, UsageError
from bridge.presets.model import Preset

if TYPE_CHECKING:
    from bridge.cli.table.options import RunOptions
    from bridge.records.request import EffectWord


SITTINGS_USUAL: Final = 8


def sittings_of(options: RunOptions) -> int:
    """Return how many sittings of a standing claim are meant."""
    return SITTINGS_USUAL if options.sittings is None else options.sittings


def drafts_of(call: Invocation[RunOptions], session: BusSession) -> list[RequestDraft]:
    """Return the drafts that a command line describes: one, or one a combination of the values that it lists.

    Raises:
        PresetNotFoundError: neither this installation nor a live runner has the preset.
        UsageError: the preset is planned, something does not fit it, or --unsandboxed is meant for a bus.
    """
    try:
        return _drafts(call, session)
    except ParameterError as error:
        error.remedy = error.remedy or f"kakeya-mac presets show {call.options.preset}"
        raise


def _drafts(call: Invocation[RunOptions], session: BusSession) -> list[RequestDraft]:
    confirms = None if call.options.confirms is None else call.find_beside(session, call.options.confirms).id

    call.options.preset, preset, runner = preset_of(session, call.options.preset, call.local_presets, call.output.say)
    repeats = 1 if call.options.repeat is None else call.options.repeat
    if call.options.profile == "standing":
        repeats = sittings_of(call.options)
    points = combinations(preset, listed(call.options.param or ()), repeats)
    call.options.expires = validity_s(call.options.expires, len(points) * repeats)
    drafts = _offered(call, session, points) if preset is None else _installed(call, session, preset, points)
    if runner is not None:
        drafts = [replace(draft, runner=parse_selector(f"name:{runner}")) for draft in drafts]
    drafts = [replace(draft, confirms=confirms, asks=_asks(call.options), load=call.options.load) for draft in drafts]
    return [without_sandbox(session, draft) for draft in drafts] if call.options.unsandboxed else drafts


def _asks(options: RunOptions) -> EffectWord | None:
    """Return the word that is to be answered after three looks; None where the number itself is wanted, too."""
    wants_number = not (options.require is None and options.confirms is None and options.load is None)
    return None if wants_number else options.fail_if


def _installed(
    call: Invocation[RunOptions], session: BusSession, preset: Preset, points: list[dict[str, str]]
) -> list[RequestDraft]:  # fmt: skip
    args = call.options
    chosen = [typed(preset, compared_with(texts, args.against, preset)) for texts in points]
    workload = choose_workload(session, preset, ref=args.ref, dirty=args.dirty, say=call.output.say)
    return [
        draft_of_preset(
            preset,
            name_commits(session, preset, values, workload),
            args.profile,
            workload=workload,
            runner=choose_runner(session, args.runner),
            expires_s=args.expires,
        )
        for values in chosen
    ]


def _offered(call: Invocation[RunOptions], session: BusSession, points: list[dict[str, str]]) -> list[RequestDraft]:
    args = call.options
    offered = offering(session, args.preset, queued=args.queue)
    if args.against is not None:
        raise UsageError(
            f"{args.preset} is known to its host alone, so that nobody here can say which commit --against means",
            remedy="give the parameter that its host has for it: -p NAME=COMMIT",
        )
    call.output.say(
        "note",
        f"{args.preset} is not installed here; runner {offered.beacon.runner} {offered.offers} and checks the "
        "parameters",
    )
    workload = None
    if args.ref is not None or args.dirty or session.record.request_form == "workload":
        workload = send_code(session, args.preset, ref=args.ref, dirty=args.dirty, say=call.output.say)
    selector = choose_runner(session, args.runner)
    return [
        draft_of_offer(args.preset, texts, args.profile, workload=workload, runner=selector, expires_s=args.expires)
        for texts in points
    ]


def show_draft(session: BusSession, draft: RequestDraft) -> Answer:
    """Return the request that would be sent, and send nothing."""
    who = identity_of(session)
    request = build(session, draft, who)
    live = find_live(session, draft)
    lines = [Row("request", f"{request.preset} ({request.profile}) to {request.ref}")]
    lines += [Row("param", f"{name} = {value}") for name, value in sorted(request.params.items())]
    if request.workload is not None:
        dirty = ", with uncommitted changes" if request.workload.dirty else ""
        commit = f"commit {request.workload.commit[:12]}, tree {request.workload.tree[:12]}{dirty}"
        lines.append(Row("workload", commit))
    lines += [
        Row("signed", "no" if who is None else f"as {who.principal} with {who.fingerprint}"),
        Row("valid", f"{request.created} to {request.expires}"),
        Row("live", f"{live.sent.id} is the same and live: it would be attached to" if live else "none"),
        Row("sent", "nothing (--dry-run)"),
    ]
    data = DryRunData(request.model_dump(mode="json"), live.sent.id if live else None)
    return Answer(data, lines, reason="dry_run", bus=session.bus_part)
