"""`kakeya-runner setup`, and how findings of `doctor` and `policy check` are shown."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.host.keys import pin_line
from bridge.diagnostics import Check, grouped, has_failed, lines
from bridge.runner.maintenance.setup import (
    SetupOptions,
    SetupStep,
    policy_steps,
    serve_argv,
    service_commands,
    state_steps,
    unit,
)
from bridge.runner.state.folder import StateFolder

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.executor.interface import Executor
    from bridge.system.clock import Clock

Say = Callable[[str], None]


def set_up(
    arguments: argparse.Namespace,
    place: tuple[Path, StateFolder],
    name: str,
    say: Say,
    open_bus: Callable[[], RunnerBus],
) -> int:
    """Make this machine a runner, or say what would be done; 1 when something is left for a person to do.

    Args:
        arguments: of the command line.
        place: the policy file and the state folder.
        name: the runner's name.
        say: takes lines for people.
        open_bus: opens the bus of the command line, making it one when it says so.
    """
    from bridge.trust import runner_key as keys

    policy, state = place
    options = SetupOptions(
        policy_path=policy,
        state=state,
        name=name,
        bus=arguments.bus,
        labels=tuple(arguments.label),
        model_roots=tuple(str(Path(root).resolve()) for root in arguments.models),
        interpreter=arguments.interpreter,
        keygen=keys.generate,
        engine=arguments.executor,
        commit_as=arguments.commit_as,
    )
    if arguments.unit:
        options = replace(options, bus=_bus_to_serve(arguments, say, open_bus))
        print(unit(serve_argv(options))[1], end="")
        return 0
    left = _take(state_steps(options), dry_run=arguments.dry_run)
    options = replace(options, bus=_bus_to_serve(arguments, say, open_bus))
    if options.bus is not None and not arguments.dry_run and not policy.exists():
        options = replace(options, root_key=_owner_of_bus(open_bus, state, name, say))
    left = _take(policy_steps(options), dry_run=arguments.dry_run) or left
    now, service = service_commands(options)
    doctor = f"kakeya-runner doctor --policy {policy} --state {state.root}"
    for what, command in (("try it", doctor), ("serve for good", service)):
        print(f"{what}: {command}")
    print(f"here:  {now}")
    if options.bus is not None:
        print(f"there: {pin_line(options.bus, state)}")
    return 1 if left else 0


def _owner_of_bus(open_bus: Callable[[], RunnerBus], state: StateFolder, name: str, say: Say) -> str | None:
    """Return the fingerprint of the key that owns the bus, None where nobody does or the bus does not answer."""
    from bridge.errors import KakeyaError
    from bridge.runner.connection.known_keys import KnownKeys

    keys = KnownKeys(state.identity, name)
    try:
        bus = open_bus()
        bus.use_root(keys.judge_root)
        bus.identity()
    except KakeyaError as error:
        say(f"who owns the bus is not known yet, and root_key is left out of the policy: {error.message}")
        return None
    root = keys.root()
    return None if root is None else root.owner


def _take(steps: Iterable[SetupStep], *, dry_run: bool) -> bool:
    """Take the steps and print each; return whether something grave is left for a person."""
    left = False
    for step in steps:
        if step.problem is not None:
            left = print_checks([step.problem]) or left
            continue
        if step.act is not None and not dry_run:
            step.act()
        print(f"{'ok' if step.act is None else 'would' if dry_run else 'done':<6} {step.what}", flush=True)
    return left


def _bus_to_serve(arguments: argparse.Namespace, say: Say, open_bus: Callable[[], RunnerBus]) -> str | None:
    """Return the route of the bus with its id; made or asked only when the command says so."""
    route: str | None = arguments.bus
    if route is None:
        return None
    place, mark, bus_id = route.partition("#")
    if "/" in place and Path(place).is_dir():
        route = f"{Path(place).resolve()}{mark}{bus_id}"  # a service is started somewhere else
    if not arguments.create_bus or bus_id:
        return route
    if arguments.dry_run:
        say(f"would make {place} a bus unless it is one")
        return route
    return f"{route}#{open_bus().identity().bus_id}"


def examine_host(
    path: Path, state: StateFolder, clock: Clock, open_bus: Callable[[], RunnerBus] | None, *, as_json: bool
) -> int:
    """Try everything a run needs, print what was found and what requesters type; 1 when something fails."""
    from bridge.errors import KakeyaError
    from bridge.executor import local_executor
    from bridge.runner.machine.machine import policy_executor
    from bridge.runner.maintenance.doctor import DoctorContext, examine
    from bridge.runner.policy.file import load_policy

    executor: Executor
    try:
        policy = load_policy(path)
    except KakeyaError:
        executor = local_executor(clock)  # examine says what is wrong with the policy
    else:
        executor = policy_executor(policy, state.root, clock, identity=state.identity)
    opened: list[RunnerBus] = []

    def open_and_remember(opening: Callable[[], RunnerBus]) -> RunnerBus:
        opened.append(opening())
        return opened[-1]

    opening = None if open_bus is None else partial(open_and_remember, open_bus)
    checks = examine(DoctorContext(path, state, executor, clock, opening))
    failed = print_checks(checks if as_json else grouped(checks), as_json=as_json)
    if opened and not as_json:
        with contextlib.suppress(KakeyaError):  # examine says what is wrong with the bus
            print(f"there: {pin_line(f'{opened[0].route}#{opened[0].identity().bus_id}', state)}")
    return 1 if failed else 0


def print_checks(checks: Iterable[Check], *, as_json: bool = False) -> bool:
    """Print what was checked; return whether something stands in the way."""
    found = list(checks)
    if as_json:
        print(json.dumps([vars(check) for check in found], indent=1))
    else:
        for line in chain.from_iterable(map(lines, found)):
            print(line)
    return has_failed(found)
