"""Turn the command line of `run` into a wish: typed by the installed preset, or by the host that alone knows it."""

from __future__ import annotations

from bridge.cli.mac.context import Invocation
from bridge.client.connection.session import BusSession
from bridge.client.send.offers import offering, wish_for
from bridge.client.send.parameters import split, typed
from bridge.client.send.submit import RequestDraft, make_wish, parse_selector
from bridge.client.send.workload import choose_workload, name_commits, send_code
from bridge.presets import Preset, registry


def wish_of(call: Invocation, session: BusSession) -> RequestDraft:
    """Return what a command line asks for.

    Raises:
        PresetNotFoundError: neither this installation nor a live runner has the preset.
        UsageError: the preset is planned, or something does not fit it.
    """
    preset = registry().get(call.args.preset)
    return _offered(call, session) if preset is None else _installed(call, session, preset)


def _installed(call: Invocation, session: BusSession, preset: Preset) -> RequestDraft:
    args = call.args
    workload = choose_workload(session, preset, ref=args.ref, dirty=args.dirty, say=call.output.say)
    values = name_commits(session, preset, typed(preset, split(args.param or ())), workload)
    return make_wish(
        preset, values, args.profile, workload=workload,
        runner=parse_selector(args.runner), expires_s=args.expires,
    )  # fmt: skip


def _offered(call: Invocation, session: BusSession) -> RequestDraft:
    """Return a wish for a preset that only a live runner knows."""
    args = call.args
    seen = offering(session, args.preset)
    call.output.say(
        "note",
        f"{args.preset} is not installed here; runner {seen.beacon.runner} offers it and checks the parameters",
    )
    wants_code = args.ref is not None or args.dirty or session.record.request_form == "workload"
    workload = (
        send_code(session, args.preset, ref=args.ref, dirty=args.dirty, say=call.output.say) if wants_code else None
    )
    return wish_for(
        args.preset, split(args.param or ()), args.profile, workload=workload,
        runner=parse_selector(args.runner), expires_s=args.expires,
    )  # fmt: skip
