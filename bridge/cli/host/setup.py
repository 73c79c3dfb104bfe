"""`kakeya-runner setup` and `doctor`: make this machine a runner, and try everything a run needs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.host.places import bus_of, open_place, open_route, policy_path, route_of, state_for, state_named
from bridge.cli.host.signing import own_name, pin_line
from bridge.cli.screen.answer import Answer
from bridge.cli.screen.findings import answer_checks, print_findings
from bridge.cli.talk import CLOCK
from bridge.diagnostics import has_failed
from bridge.errors import BusMissingError, KakeyaError, UsageError
from bridge.records.base import NAME_PATTERN
from bridge.runner.connection.served import served_record
from bridge.runner.maintenance.setup import (
    SetupOptions as SetupPlan,
)
from bridge.runner.maintenance.setup import (
    SetupStep,
    policy_steps,
    serve_argv,
    service_commands,
    state_steps,
    unit,
)
from bridge.runner.policy.file import load_policy, written_name
from bridge.runner.policy.rights import file_problems
from bridge.runner.state.folder import StateFolder

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.cli.host.call import HostCall
    from bridge.cli.screen.output import Output
    from bridge.cli.table.runner_options import DoctorOptions, SetupOptions
    from bridge.executor.interface import Executor
    from bridge.runner.policy.model import Policy

Say = Callable[[str], None]


def setup(call: HostCall[SetupOptions]) -> Answer:
    """Make this machine a runner, or say what would be done; 1 when something is left for a person to do.

    Raises:
        UsageError: a name or label is none, the policy has another name, or a bus is to be made and none is named.
    """
    options, path = call.options, policy_path(call.options).absolute()
    for option, word in (("--name", options.name), *(("--label", label) for label in options.label or ())):
        if word is not None and re.fullmatch(NAME_PATTERN, word) is None:
            text = f"{option}: got {word[:80]!r}; expected lower-case letters, digits, - . _, at most 63"
            raise UsageError(text, remedy=f"kakeya-runner setup {option} mini")
    if options.create_bus and options.bus is None:
        raise UsageError(
            "--create-bus makes a bus of --bus ROUTE, which is not there",
            remedy="kakeya-runner setup --bus ROUTE --create-bus",
        )
    is_there = path.exists() and not file_problems(path)
    policy = _good_policy(path) if is_there else None
    if policy is not None and options.name not in {None, policy.name}:
        raise UsageError(
            f"{path} is of runner {policy.name}, and --name says {options.name}",
            remedy="leave --name out, or set up a second runner: --policy FILE --state FOLDER",
        )
    name = options.name or (load_policy(path).name if is_there else written_name(path) or own_name())
    state = state_for(options, name)
    if options.create_bus and policy is not None and policy.root_key is not None:
        _refuse_other_owner(options, path, policy, state)
    return _set_up(call, (path, state), name, lambda: bus_of(options, policy, state))


def _good_policy(path: Path) -> Policy | None:
    """Return the policy, None where it is none: set-up and examination say what is wrong with it."""
    try:
        return load_policy(path)
    except KakeyaError:
        return None


def _refuse_other_owner(options: SetupOptions, path: Path, policy: Policy, state: StateFolder) -> None:
    """Refuse a bus that the policy's `root_key` keeps this runner from serving; nothing is made.

    Raises:
        UsageError: the bus has another owner than the policy names, or is none yet: it would get a new owner's key.
    """
    from tempfile import TemporaryDirectory

    from bridge.runner.connection.known_keys import ROOTS_FOLDER, known_keys
    from bridge.trust.root import RootError

    with TemporaryDirectory(prefix="kakeya-") as scratch:
        bus = open_place(str(options.bus), Path(scratch) / "bus")
        if (state.identity / ROOTS_FOLDER).is_dir():  # what is met here is not yet to be remembered
            shutil.copytree(state.identity / ROOTS_FOLDER, Path(scratch) / ROOTS_FOLDER)
        bus.use_root(known_keys(Path(scratch), policy, bus.route).judge_root)
        why = None
        try:
            bus.identity()
        except BusMissingError:
            if served_record(state.identity, bus.route) is None:
                why = "a new bus has an owner's key of its own"
        except RootError as error:
            why = error.message
    if why is not None:
        raise UsageError(
            f"{path} pins the owner of another bus, root_key = {policy.root_key!r}: {why}",
            remedy=f"take root_key and bus out of {path}, or set up a second runner: --policy FILE --state FOLDER",
        )


def _set_up(
    call: HostCall[SetupOptions], place: tuple[Path, StateFolder], name: str, open_bus: Callable[[], RunnerBus]
) -> Answer:
    """Take each step; `open_bus` opens the bus of the command line, making it one when that says so."""
    from bridge.trust import runner_key as keys

    policy, state = place
    options = call.options
    plan = SetupPlan(
        policy_path=policy,
        state=state,
        name=name,
        bus=options.bus,
        labels=tuple(options.label or ()),
        model_roots=tuple(str(Path(root).resolve()) for root in options.models or ()),
        interpreter=options.interpreter,
        keygen=keys.generate,
        engine=options.executor,
        commit_as=options.commit_as,
    )
    if options.unit:
        plan = replace(plan, bus=_bus_to_serve(options, call.note, open_bus))
        return Answer(lines=[unit(serve_argv(plan))[1].removesuffix("\n")])
    left = _take(call.output, state_steps(plan), dry_run=options.dry_run)
    plan = replace(plan, bus=_bus_to_serve(options, call.note, open_bus))
    if plan.bus is not None and not options.dry_run and not policy.exists():
        plan = replace(plan, root_key=_owner_of_bus(open_bus, state, name, call.note))
    left = _take(call.output, policy_steps(plan), dry_run=options.dry_run) or left
    places = ["--policy", str(policy), "--state", str(state.root), *_bus_words(plan)]
    now, service = service_commands(plan, ["kakeya-runner", "setup", "--unit", *places])
    doctor = shlex.join(["kakeya-runner", "doctor", *places])
    lines = [f"try it: {doctor}", f"serve for good: {service}", f"here:  {now}"]
    if plan.bus is not None:
        lines.append(f"there: {pin_line(plan.bus, state)}")
    return Answer(lines=lines, exit_code=1 if left else 0)


def _bus_words(plan: SetupPlan) -> list[str]:
    """Return the words that name the bus in a command, where the policy, which stays as it is, does not name it."""
    policy = _good_policy(plan.policy_path) if plan.policy_path.exists() else None
    if plan.bus is None or policy is None:
        return []
    named = None if policy.bus is None else policy.bus.partition("#")[0]
    return [] if named == plan.bus.partition("#")[0] else ["--bus", plan.bus]


def _owner_of_bus(open_bus: Callable[[], RunnerBus], state: StateFolder, name: str, say: Say) -> str | None:
    """Return the fingerprint of the key that owns the bus, None where nobody does or the bus does not answer."""
    from bridge.errors import KakeyaError
    from bridge.runner.connection.known_keys import KnownKeys

    try:
        bus = open_bus()
        keys = KnownKeys(state.identity, name, place=bus.route)
        bus.use_root(keys.judge_root)
        bus.identity()
    except KakeyaError as error:
        say(f"who owns the bus is not known yet, and root_key is left out of the policy: {error.message}")
        return None
    root = keys.root()
    return None if root is None else root.owner


def _take(output: Output, steps: Iterable[SetupStep], *, dry_run: bool) -> bool:
    """Take the steps and print each; return whether something grave is left for a person."""
    left = False
    for step in steps:
        if step.problem is not None:
            left = has_failed(print_findings(output, [step.problem])) or left
            continue
        if step.act is not None and not dry_run:
            step.act()
        output.data(f"{'ok' if step.act is None else 'would' if dry_run else 'done':<6} {step.what}")
    return left


def _bus_to_serve(options: SetupOptions, say: Say, open_bus: Callable[[], RunnerBus]) -> str | None:
    """Return the route of the bus with its id; made or asked only when the command says so."""
    route = options.bus
    if route is None:
        return None
    place, mark, bus_id = route.partition("#")
    if "/" in place and Path(place).is_dir():
        route = f"{Path(place).resolve()}{mark}{bus_id}"  # a service is started somewhere else
    if not options.create_bus or bus_id:
        return route
    if options.dry_run:
        say(f"would make {place} a bus unless it is one")
        return route
    return f"{route}#{open_bus().identity().bus_id}"


def _refuse_root(policy: Path) -> None:
    """Refuse to examine another user's runner as root: what root fetches and notes for it, it could not read.

    Raises:
        UsageError: root types, and the policy is another user's.
    """
    owner = policy.stat().st_uid if policy.exists() else 0
    if os.geteuid() == 0 and owner != 0:
        raise UsageError(
            f"{policy} belongs to uid {owner}, and root would leave files in its runner's folders that it cannot read",
            remedy=f"type the same as that user: sudo -u '#{owner}' kakeya-runner doctor, with the same options",
        )


def doctor(call: HostCall[DoctorOptions]) -> Answer:
    """Try everything a run needs, say what requesters type; 1 when something fails.

    Raises:
        UsageError: root types, and the policy is another user's.
    """
    from bridge.executor import local_executor
    from bridge.runner.machine.machine import policy_executor
    from bridge.runner.maintenance.doctor import DoctorContext, examine

    # A state folder that cannot be made or written is a finding.
    path, state = policy_path(call.options), state_named(call.options)
    _refuse_root(path)
    policy = _good_policy(path)
    executor: Executor
    if policy is None:
        executor = local_executor(CLOCK)
    else:
        executor = policy_executor(policy, state.root, CLOCK, identity=state.identity)
    route, by = route_of(call.options, policy), None if policy is None else policy.identity.value
    opened: list[RunnerBus] = []

    def open_bus(route: str) -> RunnerBus:
        opened.append(open_route(route, state, by=by))
        return opened[-1]

    opening = None if route is None else partial(open_bus, route)
    answer = answer_checks(call.output, examine(DoctorContext(path, state, executor, CLOCK, opening)))
    if opened:
        with contextlib.suppress(KakeyaError):  # examine says what is wrong with the bus
            call.output.data(f"there: {pin_line(f'{opened[0].route}#{opened[0].identity().bus_id}', state)}")
    return answer
