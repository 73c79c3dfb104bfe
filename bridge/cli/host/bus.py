"""`kakeya-runner bus`: what a bus allows, what its remote does, what is wrong with its refs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.bus.refs.spaces import check_patterns, pattern_of
from bridge.cli.host.places import bus_of, open_route, policy_or_none, route_of, signing_bus, state_of
from bridge.cli.host.signing import own_name
from bridge.cli.screen.answer import Answer, Talk
from bridge.cli.screen.findings import answer_checks
from bridge.cli.talk import CLOCK
from bridge.client.document.untrusted import clean_line
from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import BranchesOptions, BusRepairOptions, DoctorOptions, RunnerBusOptions


def check(call: HostCall[DoctorOptions]) -> Answer:
    """Try what the remote of a bus allows; 1 where something stands in the way."""
    from bridge.runner.maintenance.bus_checks import check_remote

    return answer_checks(call.output, check_remote(_open_named(call.options), CLOCK))


def repair(call: HostCall[BusRepairOptions]) -> Answer:
    """Say what is wrong with the refs of the bus, or mend it; 1 when something is left, 3 when the remote refuses."""
    from bridge.runner.maintenance.bus_repair import repair_bus

    options, policy, state = call.options, policy_or_none(call.options), state_of(call.options)
    bus = bus_of(options, policy, state)
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
    route = route_of(options, policy)
    if route is None:
        raise UsageError("no bus is named", remedy="give --bus ROUTE, or set bus in policy.toml")
    return open_route(route, state_of(options), keys=keys, by=None if policy is None else policy.identity.value)
