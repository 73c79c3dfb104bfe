"""What the commands of `kakeya-runner` do: put the pieces together, say what happens, end in the right code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.host.control import HANDLERS as CONTROL_HANDLERS
from bridge.cli.host.keys import keygen, own_name
from bridge.cli.host.places import bus_of, open_route, policy_of, policy_path, route_of, state_named, state_of
from bridge.cli.host.serving import once_command, serve_command
from bridge.cli.host.trust import revoke, trust
from bridge.cli.talk import CLOCK, note, say
from bridge.client.document.untrusted import clean_line
from bridge.errors import REMEDY_MARK, KakeyaError, UsageError
from bridge.runner.connection.known_keys import known_keys
from bridge.runner.policy.file import load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.rights import file_problems
from bridge.runner.service.serve import (
    default_policy_path,
    default_state,
)
from bridge.runner.state.folder import StateFolder
from bridge.runner.state.log import LEVELS, read_log, shown

if TYPE_CHECKING:
    from bridge.bus.interface import RunnerBus
    from bridge.cli.host.people import Place

_FOLLOW_S = 0.3
_GC_FETCHES = 5000


def _setup(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.setup import set_up

    path = default_policy_path() if arguments.policy is None else Path(arguments.policy).absolute()
    name = arguments.name or (load_policy(path).name if path.exists() and not file_problems(path) else own_name())
    state = default_state(name) if arguments.state is None else StateFolder(Path(arguments.state).resolve())
    return set_up(arguments, (path, state), name, say, lambda: bus_of(arguments, None, state))


def _doctor(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.setup import examine_host

    # A state folder that cannot be made or written is a finding.
    path, state = policy_path(arguments), state_of(arguments) if arguments.repair else state_named(arguments)
    try:
        policy = load_policy(path)
    except KakeyaError:
        policy = None
    route = route_of(arguments, policy)
    if arguments.repair:
        return _repair(bus_of(arguments, policy, state), dry_run=not arguments.yes)
    open_bus = None if route is None else lambda: open_route(route, state)
    return examine_host(path, state, CLOCK, open_bus, as_json=arguments.json)


def _repair(bus: RunnerBus, *, dry_run: bool) -> int:
    """Print the refs that can never be read or are in the way of others, or delete them; 1 when some are left."""
    found = list(bus.repair(dry_run=dry_run))
    ours = [bad for bad in found if bad.by_hand is None]
    for bad in ours:
        print(clean_line(f"{'deleted' if bad.gone else 'bad' if dry_run else 'moved meanwhile'} {bad.ref}: {bad.why}"))
    for bad in found:
        if bad.by_hand is not None:
            print(f"left {bad.ref}: {bad.why}{REMEDY_MARK}if nobody needs that branch: {bad.by_hand}")
    if dry_run and ours:
        say(f"{len(ours)} refs are no good to anybody; delete them with: kakeya-runner doctor --repair --yes")
    return 1 if any(not bad.gone for bad in found) else 0


def _gc(arguments: argparse.Namespace) -> int:
    policy, state = policy_of(arguments), state_of(arguments)
    older_than_s = arguments.older_than
    for path in state.old_files(CLOCK.now().timestamp() - older_than_s):
        print(path)
        if not arguments.dry_run:
            path.unlink(missing_ok=True)
    if route_of(arguments, policy) is not None:
        from bridge.bus.store.gather import WorkBudget

        bus, budget = _signing(bus_of(arguments, policy, state), policy, state), WorkBudget(_GC_FETCHES)
        for name in bus.archive(policy.name, budget=budget, drop_after_s=older_than_s, dry_run=arguments.dry_run):
            print(name)
    return 0


def _signing(bus: RunnerBus, policy: Policy, state: StateFolder) -> RunnerBus:
    """Return the bus as this runner uses it, with its keys."""
    keys = known_keys(state.root, policy)
    bus.use_root(keys.judge_root)
    mine = keys.seals()
    if mine is not None:
        bus.use_seals(mine)
    return bus


def _policy_command(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.setup import print_checks
    from bridge.runner.maintenance.setup import template
    from bridge.runner.policy.check import problems

    if arguments.action == "example":
        print(template(own_name()), end="")
        return 0
    path = policy_path(arguments)
    if arguments.action == "check" and print_checks(problems(path)):
        return 1
    policy = load_policy(path)
    if arguments.action == "check":
        print(json.dumps(policy.model_dump(mode="json") | {"secrets": sorted(policy.secrets)}, indent=1))
        say(f"{path} is a policy, digest {policy.digest(embedded=False)}")
        return 0
    from bridge.runner.authorisation.explain import what_would_run

    if arguments.preset is None:
        raise UsageError("explain needs a preset", remedy="kakeya-runner policy explain PRESET")
    for line in what_would_run(policy, arguments.preset, CLOCK, arguments.asker):
        print(line)
    return 0


def _workload(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.workload import workload

    return workload(arguments, policy_path(arguments), note)


def _journal(arguments: argparse.Namespace) -> int:
    from bridge.runner.state.journal import read_lines, verify_journal

    state = state_of(arguments)
    if arguments.action == "verify":
        try:
            print(f"{verify_journal(state.journal)} lines, the chain holds")
        except KakeyaError as error:
            print(f"kakeya-runner: {error}", file=sys.stderr)
            return 1
        return 0
    if not state.journal.exists():
        print(f"kakeya-runner: nothing has happened yet: there is no {state.journal}", file=sys.stderr)
        return 0
    for line in read_lines(state.journal):
        if arguments.run is None or line.id.endswith(arguments.run.lower()):
            detail = " ".join(f"{name}={value}" for name, value in line.detail.items())
            print(f"{line.time} {line.id} {line.event:<12} {line.oid or '':<12.12} {detail}".rstrip())
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    """Print the runner's own log; text that others wrote moves no cursor."""
    state = state_of(arguments)
    if not (arguments.follow or state.log.exists()):
        print(f"kakeya-runner: nothing has happened yet: there is no {state.log}", file=sys.stderr)
        return 0
    wait = (lambda: CLOCK.sleep(_FOLLOW_S)) if arguments.follow else None
    try:
        for line in read_log(state.log, wait):
            ours = arguments.run is None or str(line.get("run")).endswith(arguments.run.lower())
            if ours and LEVELS[line["level"]] >= LEVELS[arguments.level]:
                for text in [json.dumps(line)] if arguments.json else shown(line):
                    print(text, flush=arguments.follow)
    except KeyboardInterrupt:
        return 130
    return 0


def _keygen(arguments: argparse.Namespace) -> int:
    state = state_of(arguments)
    policy = load_policy(policy_path(arguments)) if policy_path(arguments).exists() else None
    bus = None if route_of(arguments, policy) is None else open_route(str(route_of(arguments, policy)), state)
    return keygen(arguments, state, own_name() if policy is None else policy.name, bus, say)


def _trust(arguments: argparse.Namespace) -> int:
    policy = load_policy(policy_path(arguments)) if policy_path(arguments).exists() else None
    name = own_name() if policy is None else policy.name
    state = default_state(name) if arguments.state is None else StateFolder(Path(arguments.state).resolve())

    def open_bus() -> RunnerBus | None:
        route = route_of(arguments, policy)
        if route is None:
            return None
        state.create()
        return open_route(route, state, keys=False)

    return trust(arguments, open_bus, CLOCK, state.root, name)


def _place(arguments: argparse.Namespace) -> Place:
    from bridge.cli.host.people import place_of

    policy = policy_of(arguments)

    def open_bus() -> RunnerBus:
        state = default_state(policy.name) if arguments.state is None else StateFolder(Path(arguments.state).resolve())
        state.create()
        return open_route(str(route_of(arguments, policy)), state, keys=False)

    return place_of(policy_path(arguments), policy, None if route_of(arguments, policy) is None else open_bus)


def _welcome(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.people import parse_line, welcome

    parse_line(arguments.line)  # what is no line is refused before a bus is opened
    return welcome(arguments, _place(arguments))


def _who(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.people import who

    return who(arguments.name, _place(arguments))


def _job_hook(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.hook import answer

    return answer(arguments, lambda: policy_of(arguments).actions, state_of(arguments).root, say)


HANDLERS: dict[str, Callable[[argparse.Namespace], int]] = {
    "serve": serve_command,
    "once": once_command,
    "setup": _setup,
    "doctor": _doctor,
    **CONTROL_HANDLERS,
    "gc": _gc,
    "policy": _policy_command,
    "workload": _workload,
    "journal": _journal,
    "logs": _logs,
    "job-hook": _job_hook,
    "keygen": _keygen,
    "trust": _trust,
    "revoke": revoke,
    "welcome": _welcome,
    "who": _who,
}
