"""`kakeya-runner bus`: what a bus allows, what its remote does, what is wrong with its refs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.bus.refs.spaces import check_patterns, pattern_of
from bridge.cli.host.places import (
    bus_of,
    open_place,
    open_route,
    policy_or_none,
    repository_of,
    require_route,
    signing_bus,
    state_of,
)
from bridge.cli.host.signing import own_name, pin_line
from bridge.cli.screen.answer import Answer, Line, Talk
from bridge.cli.screen.findings import answer_checks
from bridge.cli.talk import CLOCK
from bridge.client.document.untrusted import clean_line
from bridge.errors import BusMissingError, RouteMissingError, UsageError

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import (
        BranchesOptions,
        BusMoveOptions,
        BusRepairOptions,
        DoctorOptions,
        RunnerBusOptions,
    )


def check(call: HostCall[DoctorOptions]) -> Answer:
    """Try what the remote of a bus allows; 1 where something stands in the way."""
    from bridge.runner.maintenance.bus_checks import check_remote

    return answer_checks(call.output, check_remote(_open_named(call.options), CLOCK))


def repair(call: HostCall[BusRepairOptions]) -> Answer:
    """Say what is wrong with the refs of the bus, or mend it; 1 when something is left, 3 when the remote refuses."""
    from bridge.runner.maintenance.bus_repair import repair_bus

    options, policy, state = call.options, policy_or_none(call.options), state_of(call.options)
    try:
        bus = bus_of(options, policy, state)
    except BusMissingError as error:
        error.remedy = "bring a bus that was elsewhere here first: git push --mirror ROUTE from a mirror of it"
        raise
    if policy is not None:
        bus = signing_bus(bus, policy, state)
    left = shown = refused = 0
    for finding in repair_bus(bus, own_name() if policy is None else policy.name, CLOCK, act=options.yes):
        call.output.data(clean_line(finding.text))
        left, shown, refused = left + (not finding.mended), shown + 1, refused + finding.refused
    if not shown:
        return Answer(lines=[Talk("note", "nothing is damaged, and nothing is in the way")])
    remedy = Talk("next", "mend what this host can mend of it: kakeya-runner bus repair --yes")
    return Answer(lines=() if options.yes else [remedy], exit_code=3 if refused else 1 if left else 0)


def move(call: HostCall[BusMoveOptions]) -> Answer:
    """Move a bus to another remote, or take a move back that has not ended.

    Raises:
        UsageError: no place, or no bus, is named, another account owns the bus, or the place is not for it.
    """
    from bridge.bus.sides.runner import BUS_SETTING
    from bridge.bus.store.route import resolve
    from bridge.runner.maintenance.bus_move import BusMove, old_place
    from bridge.runner.maintenance.owner import BusOwner
    from bridge.runner.policy.file import owner_folder

    options, policy = call.options, policy_or_none(call.options)
    route, state = require_route(options, policy), state_of(options)
    if (options.place is None) != options.stay:
        raise UsageError("expected a place to move to, or --stay", remedy="kakeya-runner bus move NEW --bus ROUTE")
    by = None if policy is None else policy.identity.value
    folder = state.root / "move"
    try:
        target = open_place(options.place or route, folder, by)
    except RouteMissingError as error:
        if not options.stay:
            error.remedy = "name an empty repository that is there: git init --bare FOLDER makes it"
        raise
    named = (options.place or route).partition("#")[0]
    place = "" if options.stay else options.as_ or resolve(named, repository_of(named), folder).told
    with old_place(route.partition("#")[0], place):
        bus = open_place(route, folder, by)
    owner = BusOwner(bus, owner_folder(os.environ), CLOCK)
    going = BusMove(owner, bus, target, place, clock=CLOCK, say=call.note)
    if options.stay:
        going.stay()
        return Answer(lines=[Talk("note", f"the bus stays at {bus.route}, and its runners take requests again")])
    moved = going.run(now=options.now)
    shutil.rmtree(folder, ignore_errors=True)
    lines: list[Line] = [
        f"the bus is at {place} now" + (f", with {moved.refs} refs carried" if moved.refs else ", as it was before"),
        Talk("next", f"on each host: {BUS_SETTING.format(place=place)}, then kakeya-runner serve"),
        Talk("next", f"in each clone: {pin_line(f'{place}#{moved.bus_id}', state)}"),
    ]
    if not moved.is_told:
        lines.append(Talk("note", f"{bus.route} takes no push, so nothing there says where the bus is: tell everybody"))
    if moved.late:
        names = ", ".join(moved.late)
        lines.append(Talk("note", f"not seen to stop: {names}; what they wrote since lies at {bus.route} alone"))
    return Answer(lines=lines)


def allow_branches(call: HostCall[BranchesOptions]) -> Answer:
    """Let a bus take requests on the branches of one more space, in its record and in the root where there is one.

    Raises:
        UsageError: no such space can be taken, or another account owns the bus.
    """
    from bridge.runner.maintenance.owner import BusOwner
    from bridge.runner.policy.file import owner_folder

    space = call.options.space
    pattern = pattern_of(space)
    bus = _open_named(call.options, keys=False)
    owner = BusOwner(bus, owner_folder(os.environ), CLOCK)
    record = bus.identity()
    if pattern in record.request_branches:
        return Answer(lines=[Talk("note", f"{bus.route} takes requests on {pattern} already")])
    changed = record.evolve(request_branches=(*record.request_branches, pattern))
    check_patterns(changed.request_branches)
    if bus.has_branch(space.removesuffix("/")):
        raise UsageError(f"{bus.route} has a branch {space!r}; git allows no other below its name")
    if bus.root_tip is not None:
        owner.change(lambda content: replace(content, record=changed))
    bus.update(changed)
    text = (
        f"{bus.route} takes requests on {pattern} from now on; clones on a branch below {space} find it by themselves"
    )
    return Answer(lines=[Talk("note", text)])


def _open_named(options: RunnerBusOptions, *, keys: bool = True) -> RunnerBus:
    policy = policy_or_none(options)
    by = None if policy is None else policy.identity.value
    return open_route(require_route(options, policy), state_of(options), keys=keys, by=by)
