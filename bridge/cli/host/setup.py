"""`kakeya-runner setup`, and how findings of `doctor` and `policy check` are shown."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.runner.host import StateFolder
from bridge.runner.maintenance.doctor import Finding
from bridge.runner.maintenance.setup import (
    SetupOptions,
    SetupStep,
    policy_steps,
    serve_argv,
    service_commands,
    state_steps,
    unit,
)
from bridge.runner.policy.check import problems

if TYPE_CHECKING:
    from bridge.bus.interface import RunnerBus
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
    from bridge.trust.attestation import is_available

    policy, state = place
    wish = SetupOptions(
        policy_path=policy,
        state=state,
        name=name,
        bus=arguments.bus,
        labels=tuple(arguments.label),
        model_roots=tuple(str(Path(root).resolve()) for root in arguments.models),
        interpreter=arguments.interpreter,
        keygen=keys.generate if is_available() else None,
    )
    if arguments.unit:
        wish = replace(wish, bus=_bus_to_serve(arguments, say, open_bus))
        print(unit(serve_argv(wish))[1], end="")
        return 0
    left = _take(state_steps(wish), dry_run=arguments.dry_run)
    wish = replace(wish, bus=_bus_to_serve(arguments, say, open_bus))
    left = _take(policy_steps(wish), dry_run=arguments.dry_run) or left
    now, service = service_commands(wish)
    doctor = f"kakeya-runner doctor --policy {policy} --state {state.root}"
    for what, command in (("try it", doctor), ("serve now", now), ("serve for good", service)):
        print(f"{what}: {command}")
    return 1 if left else 0


def _take(steps: Iterable[SetupStep], *, dry_run: bool) -> bool:
    """Take the steps and print each; return whether something grave is left for a person."""
    left = False
    for step in steps:
        if step.problem is not None:
            left = left or step.problem.grave
            print(f"{'WRONG' if step.problem.grave else 'look':<6} {step.what}: {step.problem.text}")
            print(f"{'':<6} next: {step.problem.remedy}")
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
    """Try everything a run needs and print what was found; 1 when something fails."""
    from bridge.errors import KakeyaError
    from bridge.executor import local_executor
    from bridge.runner.maintenance.doctor import DoctorContext, examine
    from bridge.runner.policy.allow_lists import host_paths
    from bridge.runner.policy.file import load_policy

    try:
        paths = host_paths(load_policy(path), state.root)
    except KakeyaError:
        paths = None  # examine says what is wrong with the policy
    executor = local_executor(clock, paths)
    return print_findings(examine(DoctorContext(path, state, executor, clock, open_bus)), as_json=as_json)


def print_findings(findings: Iterable[Finding], *, as_json: bool) -> int:
    """Print what `doctor` found; 1 when something fails."""
    found = list(findings)
    if as_json:
        print(json.dumps([vars(finding) for finding in found], indent=1))
    else:
        for finding in found:
            print(f"{finding.level:<5} {finding.name:<9} {finding.text}")
            if finding.remedy is not None and finding.level != "ok":
                print(f"{'':<15} next: {finding.remedy}")
    return 1 if any(finding.level == "fail" for finding in found) else 0


def print_problems(path: Path) -> bool:
    """Print everything that is wrong with a policy file; return whether a runner would refuse to start with it."""
    found = list(problems(path))
    for problem in found:
        print(f"{'WRONG' if problem.grave else 'look':<6} {problem.where}: {problem.text}")
        print(f"{'':<6} next: {problem.remedy}")
    return any(problem.grave for problem in found)
