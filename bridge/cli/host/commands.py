"""What the commands of `kakeya-runner` do: put the pieces together, say what happens, end in the right code."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.host.control import HANDLERS as CONTROL_HANDLERS
from bridge.cli.host.keys import keygen, own_name
from bridge.cli.host.places import (
    bus_of,
    open_route,
    policy_of,
    policy_path,
    route_of,
    state_for,
    state_named,
    state_of,
)
from bridge.cli.host.serving import once_command, serve_command
from bridge.cli.host.trust import revoke, trust
from bridge.cli.talk import CLOCK, note, say
from bridge.client.document.untrusted import clean_line
from bridge.errors import KakeyaError, UsageError
from bridge.records.base import NAME_PATTERN
from bridge.runner.authorisation.trust_files import check_principal
from bridge.runner.connection.known_keys import known_keys
from bridge.runner.policy.file import load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.rights import file_problems
from bridge.runner.service.serve import default_policy_path
from bridge.runner.state.folder import StateFolder
from bridge.runner.state.log import LEVELS, read_log, shown

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.cli.host.people import Place

_FOLLOW_S = 0.3
_GC_FETCHES = 5000


def _setup(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.setup import set_up

    path = default_policy_path() if arguments.policy is None else Path(arguments.policy).absolute()
    for option, word in (("--name", arguments.name), *(("--label", label) for label in arguments.label)):
        if word is not None and re.fullmatch(NAME_PATTERN, word) is None:
            raise UsageError(
                f"{option}: got {word[:80]!r}; expected lower-case letters, digits, - . _, at most 63",
                remedy=f"kakeya-runner setup {option} mini",
            )
    name = arguments.name or (load_policy(path).name if path.exists() and not file_problems(path) else own_name())
    state = state_for(arguments, name)
    try:
        policy = load_policy(path) if path.exists() and not file_problems(path) else None
    except KakeyaError:  # set-up says what is wrong with it, and leaves it to its owner
        policy = None
    return set_up(arguments, (path, state), name, say, lambda: bus_of(arguments, policy, state))


def _doctor(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.setup import examine_host

    # A state folder that cannot be made or written is a finding.
    path, state = policy_path(arguments), state_named(arguments)
    try:
        policy = load_policy(path)
    except KakeyaError:
        policy = None
    route = route_of(arguments, policy)
    open_bus = (
        None
        if route is None
        else lambda: open_route(route, state, by=None if policy is None else policy.identity.value)
    )
    return examine_host(path, state, CLOCK, open_bus, as_json=arguments.json)


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
    keys = known_keys(state.identity, policy)
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
    asker = None if arguments.asker is None else check_principal(arguments.asker)
    for line in what_would_run(policy, arguments.preset, CLOCK, asker):
        print(line)
    return 0


def _workload(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.workload import workload

    return workload(arguments, policy_path(arguments), note)


def _state(arguments: argparse.Namespace) -> int:
    from bridge.runner.maintenance.state_view import event_lines, state_lines

    path = state_of(arguments).database
    if not path.exists():
        print(f"kakeya-runner: nothing has happened yet: there is no {path}", file=sys.stderr)
        return 0
    try:
        for line in state_lines(path) if arguments.run is None else event_lines(path, arguments.run):
            print(line)
    except KakeyaError as error:
        print(f"kakeya-runner: {error}", file=sys.stderr)
        return 1
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
    route, by = route_of(arguments, policy), None if policy is None else policy.identity.value
    bus = None if route is None else open_route(route, state, by=by)
    return keygen(arguments, state, own_name() if policy is None else policy.name, bus, say)


def _trust(arguments: argparse.Namespace) -> int:
    policy = load_policy(policy_path(arguments)) if policy_path(arguments).exists() else None
    name = own_name() if policy is None else policy.name
    state = state_for(arguments, name)

    def open_bus() -> RunnerBus | None:
        route = route_of(arguments, policy)
        if route is None:
            return None
        state.create()
        return open_route(route, state, keys=False, by=None if policy is None else policy.identity.value)

    return trust(arguments, open_bus, CLOCK, state.identity, name)


def _bus(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.bus import allow_branches
    from bridge.runner.policy.file import owner_folder

    policy = load_policy(policy_path(arguments)) if policy_path(arguments).exists() else None
    route, state = route_of(arguments, policy), state_of(arguments)
    by = None if policy is None else policy.identity.value
    if route is None:
        raise UsageError("no bus is named", remedy="give --bus ROUTE, or set bus in policy.toml")
    if arguments.action == "repair":
        return _repair_bus(arguments, policy, state)
    if arguments.action == "check":
        from bridge.cli.host.setup import print_checks
        from bridge.runner.maintenance.bus_checks import check_remote

        bus = open_route(route, state, by=by)
        return 1 if print_checks(check_remote(bus, CLOCK), as_json=arguments.json) else 0
    if arguments.space is None:
        raise UsageError("allow-branches needs a space", remedy="kakeya-runner bus allow-branches claude --bus ROUTE")
    return allow_branches(
        lambda: open_route(route, state, keys=False, by=by), owner_folder(os.environ), arguments.space, CLOCK, say
    )


def _repair_bus(arguments: argparse.Namespace, policy: Policy | None, state: StateFolder) -> int:
    """Print what is wrong with the refs of the bus, or mend it; 1 when something is left."""
    from bridge.runner.maintenance.bus_repair import repair_bus

    bus = bus_of(arguments, policy, state)
    if policy is not None:
        bus = _signing(bus, policy, state)
    left = shown = 0
    for finding in repair_bus(bus, own_name() if policy is None else policy.name, CLOCK, act=arguments.yes):
        print(clean_line(finding.text))
        left, shown = left + (not finding.mended), shown + 1
    if shown and not arguments.yes:
        say("mend what this host can mend of it: kakeya-runner bus repair --yes")
    elif not shown:
        say("nothing is damaged, and nothing is in the way")
    return 1 if left else 0


def _place(arguments: argparse.Namespace) -> Place:
    from bridge.cli.host.people import place_of

    policy = policy_of(arguments)

    def open_bus() -> RunnerBus:
        state = state_for(arguments, policy.name)
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
    "bus": _bus,
    **CONTROL_HANDLERS,
    "gc": _gc,
    "policy": _policy_command,
    "workload": _workload,
    "state": _state,
    "logs": _logs,
    "job-hook": _job_hook,
    "keygen": _keygen,
    "trust": _trust,
    "revoke": revoke,
    "welcome": _welcome,
    "who": _who,
}
