"""Which policy file, which state folder and which bus a command of `kakeya-runner` means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.bus import open_bus
from bridge.cli.host.signing import own, own_name, pin_line, signed
from bridge.cli.table.runner_options import CreatingOptions, PlaceOptions, RunnerBusOptions, SetupOptions
from bridge.cli.talk import CLOCK, say
from bridge.errors import BusMissingError, UsageError, of_system
from bridge.runner.connection.known_keys import KnownKeys, known_keys
from bridge.runner.connection.served import put_served_record_back
from bridge.runner.maintenance.bus_checks import check_requests
from bridge.runner.policy.file import load_policy, written_name
from bridge.runner.policy.model import Policy
from bridge.runner.service.serve import default_policy_path, runner_place
from bridge.runner.state.folder import NO_STATE_REMEDY, StateFolder
from bridge.system.gitobjects import Committer, committer_from

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus


def policy_path(options: PlaceOptions) -> Path:
    """Return the policy file: the one an option names, else the user's."""
    return default_policy_path() if options.policy is None else Path(options.policy)


def policy_of(options: PlaceOptions) -> Policy:
    """Return the policy.

    Raises:
        UsageError: the file is none.
    """
    return load_policy(policy_path(options))


def policy_or_none(options: PlaceOptions) -> Policy | None:
    """Return the policy, None where there is no such file.

    Raises:
        UsageError: the file is none.
    """
    return policy_of(options) if policy_path(options).exists() else None


def state_named(options: PlaceOptions) -> StateFolder:
    """Return the state folder, whether or not it is there: the one an option names, else that of the runner's name.

    A policy that cannot be used still says whose it is: its runner goes on, and is to hear what its owner orders.
    """
    try:
        name = policy_of(options).name
    except UsageError:
        name = written_name(policy_path(options)) or own_name()
    return state_for(options, name)


def state_for(options: PlaceOptions, name: str) -> StateFolder:
    """Return the state folder of a runner of this name, whether or not it is there."""
    return runner_place(name, policy_path(options), None if options.state is None else Path(options.state))


def state_of(options: PlaceOptions) -> StateFolder:
    """Return the state folder, made if it is not there.

    Raises:
        InfrastructureError: it cannot be made, or written.
    """
    state = state_named(options)
    try:
        state.create()
    except OSError as error:
        raise of_system(error, NO_STATE_REMEDY) from error
    return state


def route_of(options: RunnerBusOptions, policy: Policy | None) -> str | None:
    """Return the route of the bus that an option, the environment or the policy names; None where none does."""
    return options.bus or os.environ.get("KAKEYA_BUS") or (None if policy is None else policy.bus)


def require_route(options: RunnerBusOptions, policy: Policy | None) -> str:
    """Return the route of the bus that is named.

    Raises:
        UsageError: none is.
    """
    if (route := route_of(options, policy)) is None:
        raise UsageError("no bus is named", remedy="give --bus ROUTE, or set bus in policy.toml")
    return route


def bus_of(options: RunnerBusOptions, policy: Policy | None, state: StateFolder, only: str | None = None) -> RunnerBus:
    """Return the bus, made when the command says so; the record of one that this runner served is put back.

    Args:
        options: of the command line.
        policy: the owner's, None where there is none yet.
        state: the runner's folder.
        only: the id that the bus must have, None for any.

    Raises:
        UsageError: no bus is named, or another than `only`.
        BusMissingError: the remote carries none.
    """
    route = require_route(options, policy)
    place, _, named = route.partition("#")
    if only is not None and named not in {"", only}:
        raise UsageError(f"the ticket is for bus {only}, and --bus names {named}", remedy="use a ticket of that bus")
    by = _committer(options, policy)
    bus = open_route(route if only is None else f"{place}#{only}", state, by=by)
    named_here = options.name if isinstance(options, SetupOptions) else None
    name = named_here or (own_name() if policy is None else policy.name)
    try:
        bus.identity()
    except BusMissingError:
        if put_served_record_back(state.identity, bus):
            say(f"the record of bus {bus.identity().bus_id}, served here before, was deleted on {bus.route}: put back")
            return bus
        if not (isinstance(options, CreatingOptions) and options.create_bus):
            raise
        from bridge.bus.open.create import new_record
        from bridge.bus.store.route import resolve

        local = resolve(route.partition("#")[0], repository_of(route), state.bus).is_local
        record = signed(new_record(CLOCK, wake=options.wake, local=local), state, say)
        for line in bus.create(record).lines():
            say(line)
        requests = check_requests(bus)
        if requests.level != "ok":
            say(f"{requests.text}; {requests.remedy}")
        say(f"made {bus.route} a bus")
        if record.attestation == "dsse":
            own(
                open_route(f"{route.partition('#')[0]}#{record.bus_id}", state, keys=False, by=by),
                state,
                name,
                say,
                CLOCK,
            )
            bus = open_route(route, state, by=by)
        if not isinstance(options, SetupOptions):  # which ends with this line
            say(f"requesters pin it with: {pin_line(f'{bus.route}#{record.bus_id}', state)}")
    return bus


def _committer(options: RunnerBusOptions, policy: Policy | None) -> Committer | None:
    """Return who makes commits: whom an option names, else the policy.

    Raises:
        UsageError: the option names nobody.
    """
    who = options.commit_as if isinstance(options, SetupOptions) else None
    if who is None:
        return None if policy is None else policy.identity.value
    try:
        return committer_from(who)
    except ValueError as error:
        raise UsageError(f"--commit-as: {error}") from error


def open_route(route: str, state: StateFolder, *, keys: bool = True, by: Committer | None = None) -> RunnerBus:
    """Return the bus of a route; with `keys` it goes by the root that this runner remembers of it.

    Args:
        route: with the id of the bus behind ``#``, where that is known.
        state: the runner's folder.
        keys: whether to go by that root.
        by: who makes commits, None for the usual one.
    """
    name, _, bus_id = route.partition("#")
    bus = open_bus(
        name, repository=repository_of(name), state=state.bus, clock=CLOCK, expect_id=bus_id or None,
        budget=None if state.lasts else state.root / "pushes.json", committer=by,
    )  # fmt: skip
    if keys:
        bus.use_root(KnownKeys(state.identity, "", place=bus.route).remember_root)
    return bus


def open_place(route: str, folder: Path, by: Committer | None = None) -> RunnerBus:
    """Return the bus of a route with all of its objects in a folder of their own; two may share one.

    Args:
        route: with the id of the bus behind ``#``, where that is known.
        folder: is made where it is not there.
        by: who makes commits, None for the usual one.
    """
    name, _, bus_id = route.partition("#")
    return open_bus(
        name, repository=repository_of(name), state=folder, clock=CLOCK, expect_id=bus_id or None, committer=by,
        borrows=False,
    )  # fmt: skip


def signing_bus(bus: RunnerBus, policy: Policy, state: StateFolder) -> RunnerBus:
    """Return the bus as this runner uses it, with its keys."""
    keys = known_keys(state.identity, policy, bus.route)
    bus.use_root(keys.judge_root)
    seals = keys.seals()
    if seals is not None:
        bus.use_seals(seals)
    return bus


def repository_of(route: str) -> Path | None:
    """Return the clone around us where the route is the name of one of its remotes."""
    if "/" in route or ":" in route:
        return None
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
