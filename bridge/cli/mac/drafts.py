"""Turn the command line of `run` into a draft: typed by the installed preset, or by the host that alone knows it."""

from __future__ import annotations

from dataclasses import replace

from bridge.cli.mac.context import Invocation
from bridge.client.connection.session import BusSession
from bridge.client.connection.signing import identity_of
from bridge.client.document.envelope import of_data
from bridge.client.send.draft import (
    RequestDraft,
    build,
    draft_of_offer,
    draft_of_preset,
    offering,
    parse_selector,
    without_sandbox,
)
from bridge.client.send.offered import compared_with, preset_of
from bridge.client.send.parameters import split, typed
from bridge.client.send.submit import find_live
from bridge.client.send.workload import choose_workload, name_commits, send_code
from bridge.durations import age_text
from bridge.presets import Preset
from bridge.records import RunnerSelector


def draft_of(call: Invocation, session: BusSession) -> RequestDraft:
    """Return the draft that a command line describes.

    Raises:
        PresetNotFoundError: neither this installation nor a live runner has the preset.
        UsageError: the preset is planned, something does not fit it, or --unsandboxed is meant for a bus.
    """
    confirms = None if call.args.confirms is None else call.find_beside(session, call.args.confirms).id

    call.args.preset, preset, runner = preset_of(session, call.args.preset, call.local_presets, call.output.say)
    if preset is None:
        draft = _offered(call, session)
    else:
        draft = _installed(call, session, preset)
        draft = draft if runner is None else replace(draft, runner=RunnerSelector(name=runner))
    draft = replace(draft, confirms=confirms)
    return without_sandbox(session, draft) if call.args.unsandboxed else draft


def _installed(call: Invocation, session: BusSession, preset: Preset) -> RequestDraft:
    args = call.args
    workload = choose_workload(session, preset, ref=args.ref, dirty=args.dirty, say=call.output.say)
    values = name_commits(
        session, preset, typed(preset, compared_with(split(args.param or ()), args.against, preset)), workload
    )
    selector = parse_selector(args.runner)
    return draft_of_preset(
        preset, values, args.profile, workload=workload, runner=selector, expires_s=args.expires
    )  # fmt: skip


def _offered(call: Invocation, session: BusSession) -> RequestDraft:
    args = call.args
    seen = offering(session, args.preset, queued=args.queue)
    offers = "offers it" if seen.live else f"offered it {age_text(seen.age_s)} ago"
    call.output.say(
        "note",
        f"{args.preset} is not installed here; runner {seen.beacon.runner} {offers} and checks the parameters",
    )
    workload = None
    if args.ref is not None or args.dirty or session.record.request_form == "workload":
        workload = send_code(session, args.preset, ref=args.ref, dirty=args.dirty, say=call.output.say)
    texts, selector = split(args.param or ()), parse_selector(args.runner)
    return draft_of_offer(
        args.preset, texts, args.profile, workload=workload, runner=selector, expires_s=args.expires
    )  # fmt: skip


def show_draft(call: Invocation, session: BusSession, draft: RequestDraft) -> int:
    """Print the request that would be sent, and send nothing."""
    who = identity_of(session)
    request = build(session, draft, who)
    live = find_live(session, draft)
    call.output.row("request", f"{request.preset} ({request.profile}) to {request.ref}")
    for name, value in sorted(request.params.items()):
        call.output.row("param", f"{name} = {value}")
    if request.workload is not None:
        dirty = ", with uncommitted changes" if request.workload.dirty else ""
        call.output.row("workload", f"commit {request.workload.commit[:12]}, tree {request.workload.tree[:12]}{dirty}")
    call.output.row("signed", "no" if who is None else f"as {who.principal} with {who.fingerprint}")
    call.output.row("valid", f"{request.created} to {request.expires}")
    call.output.row("live", f"{live.sent.id} is the same and live: it would be attached to" if live else "none")
    call.output.row("sent", "nothing (--dry-run)")
    data = {"request": request.model_dump(mode="json"), "live": live.sent.id if live else None}
    call.output.document(of_data("run", data, reason="dry_run", bus=session.bus_part()))
    return 0
