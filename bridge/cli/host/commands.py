"""What the commands of `kakeya-runner` do: put the pieces together, say what happens, end in the right code."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.bus import open_bus
from bridge.cli.host.control import HANDLERS as CONTROL_HANDLERS
from bridge.cli.host.keys import enrol, enrol_own, keygen, own, own_name, signed
from bridge.cli.host.places import policy_of, policy_path, state_of
from bridge.cli.host.talk import CLOCK, say
from bridge.cli.host.trust import revoke, trust
from bridge.errors import BusMissingError, KakeyaError, UsageError
from bridge.runner.connection.known_keys import KnownKeys, known_keys
from bridge.runner.policy.file import builtin_policy, load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.rights import file_problems
from bridge.runner.service.serve import (
    default_policy_path,
    default_state,
    once,
    runner_on,
    serve,
    serve_embedded,
    stopping_on_signals,
)
from bridge.runner.state.folder import StateFolder
from bridge.runner.state.log import LEVELS, new_log, read_log, shown
from bridge.system.durable import NameLock

if TYPE_CHECKING:
    from bridge.bus.interface import RunnerBus
    from bridge.runner.service.loop import Runner

_FOLLOW_S = 0.3
_GC_FETCHES = 5000


@contextmanager
def _runner(
    arguments: argparse.Namespace,
    stopping: threading.Event,
    summary: Callable[[str], None] | None = None,
    leaving: threading.Event | None = None,
) -> Iterator[tuple[Runner, str]]:
    """Hold the runner's name and put it together; the second value says what it serves."""
    policy, state = policy_of(arguments), state_of(arguments)
    with NameLock(state.lock).held():
        if arguments.rehash:
            state.model_digests.unlink(missing_ok=True)
        bus, log = _bus(arguments, policy, state), new_log(sys.stderr, policy.secrets.values())
        enrol(bus, state, policy.name, say)
        with runner_on(
            bus, policy, state, clock=CLOCK, stopping=stopping, log=log, leaving=leaving, summary=summary
        ) as runner:
            digest = policy.digest(embedded=False)
            yield runner, f"runner {policy.name} serves {bus.route}, policy {digest[:12]}, state {state.root}"


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.embedded is not None:
        return _serve_embedded(arguments)
    leaving = threading.Event()  # a signal is a restart or an upgrade: what runs goes on
    with (
        _runner(arguments, threading.Event(), leaving=leaving) as (runner, what),
        stopping_on_signals(leaving) as signals,
    ):
        runner.log.info(what)
        serve(runner, idle_s=arguments.idle)
    return signals.exit_code(0)


def _serve_embedded(arguments: argparse.Namespace) -> int:
    from bridge.bus.open.embedded import embedded_folder, ensure_embedded, tidy_embedded
    from bridge.limits import EMBEDDED_IDLE_S

    data = Path(arguments.embedded)
    route = ensure_embedded(data, CLOCK)
    state = StateFolder(embedded_folder(data) / "runner")
    state.create()
    path = default_policy_path() if arguments.policy is None else Path(arguments.policy)
    policy = load_policy(path) if path.exists() else builtin_policy(os.environ)
    bus = open_bus(str(route), repository=None, state=state.bus, clock=CLOCK)
    idle_s = EMBEDDED_IDLE_S if arguments.idle is None else arguments.idle
    with stopping_on_signals(threading.Event()) as signals:
        served = serve_embedded(
            bus, policy, state, clock=CLOCK, stopping=signals.stopping, idle_s=idle_s,
            log=new_log(sys.stderr, policy.secrets.values()),
            enrol=lambda: enrol_own(bus, state, policy.name, say),
        )  # fmt: skip
        if not served:
            say("another process serves the embedded bus already")
    if served and not signals.caught:
        tidy_embedded(data)
    return signals.exit_code(0)


def _once(arguments: argparse.Namespace) -> int:
    branch = arguments.branch
    if branch is not None and not branch.startswith("refs/"):
        branch = f"refs/heads/{branch}"
    summary = print if arguments.summary else None
    stopping = threading.Event()
    with _runner(arguments, stopping, summary) as (runner, _), stopping_on_signals(stopping) as signals:
        code = once(runner, branch=branch)
    return signals.exit_code(code)


def _setup(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.setup import set_up

    path = default_policy_path() if arguments.policy is None else Path(arguments.policy).absolute()
    name = arguments.name or (load_policy(path).name if path.exists() and not file_problems(path) else own_name())
    state = default_state(name) if arguments.state is None else StateFolder(Path(arguments.state).resolve())
    return set_up(arguments, (path, state), name, say, lambda: _bus(arguments, None, state))


def _doctor(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.setup import examine_host

    path, state = policy_path(arguments), state_of(arguments)
    try:
        policy = load_policy(path)
    except KakeyaError:
        policy = None
    route = _route(arguments, policy)
    if arguments.repair:
        return _repair(_bus(arguments, policy, state), dry_run=not arguments.yes)
    open_bus = None if route is None else lambda: _open(route, state)
    return examine_host(path, state, CLOCK, open_bus, as_json=arguments.json)


def _repair(bus: RunnerBus, *, dry_run: bool) -> int:
    """Print the refs that can never be read, or delete them; 1 when some are left."""
    found = list(bus.repair(dry_run=dry_run))
    for bad in found:
        print(f"{'deleted' if bad.gone else 'bad' if dry_run else 'moved meanwhile'} {bad.ref}: {bad.why}")
    if dry_run and found:
        say(f"{len(found)} refs can never be read; delete them with: kakeya-runner doctor --repair --yes")
    return 1 if any(not bad.gone for bad in found) else 0


def _gc(arguments: argparse.Namespace) -> int:
    policy, state = policy_of(arguments), state_of(arguments)
    older_than_s = arguments.older_than
    for path in state.old_files(CLOCK.now().timestamp() - older_than_s):
        print(path)
        if not arguments.dry_run:
            path.unlink(missing_ok=True)
    if _route(arguments, policy) is not None:
        from bridge.bus.store.gather import WorkBudget

        bus, budget = _signing(_bus(arguments, policy, state), policy, state), WorkBudget(_GC_FETCHES)
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

    return workload(arguments, policy_path(arguments), say)


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
    bus = None if _route(arguments, policy) is None else _open(str(_route(arguments, policy)), state)
    return keygen(arguments, state, own_name() if policy is None else policy.name, bus, say)


def _trust(arguments: argparse.Namespace) -> int:
    policy = load_policy(policy_path(arguments)) if policy_path(arguments).exists() else None
    name = own_name() if policy is None else policy.name
    state = default_state(name) if arguments.state is None else StateFolder(Path(arguments.state).resolve())

    def open_bus() -> RunnerBus | None:
        route = _route(arguments, policy)
        if route is None:
            return None
        state.create()
        return _open(route, state, keys=False)

    return trust(arguments, open_bus, CLOCK, state.root, name)


def _job_hook(arguments: argparse.Namespace) -> int:
    from bridge.cli.host.hook import answer

    return answer(arguments, lambda: policy_of(arguments).actions, state_of(arguments).root, say)


def _route(arguments: argparse.Namespace, policy: Policy | None) -> str | None:
    return arguments.bus or os.environ.get("KAKEYA_BUS") or (None if policy is None else policy.bus)


def _bus(arguments: argparse.Namespace, policy: Policy | None, state: StateFolder) -> RunnerBus:
    """Return the bus, made when the command says so.

    Raises:
        UsageError: no bus is named.
        BusMissingError: the remote carries none.
    """
    route = _route(arguments, policy)
    if route is None:
        raise UsageError("no bus is named", remedy="give --bus ROUTE, or set bus in policy.toml")
    bus = _open(route, state)
    name = arguments.name if getattr(arguments, "name", None) else own_name() if policy is None else policy.name
    try:
        bus.identity()
    except BusMissingError:
        if not getattr(arguments, "create_bus", False):
            raise
        from bridge.bus.open.create import new_record
        from bridge.bus.store.route import resolve

        local = resolve(route.partition("#")[0], _repository(route), state.bus).is_local
        record = signed(new_record(CLOCK, wake=arguments.wake, local=local), state, say)
        bus.create(record)
        say(f"made {bus.route} a bus; requesters pin it with: kakeya-mac init --bus ROUTE#{record.bus_id}")
        if record.attestation == "dsse":
            own(_open(f"{route.partition('#')[0]}#{record.bus_id}", state, keys=False), state, name, say, CLOCK)
            bus = _open(route, state)
    return bus


def _open(route: str, state: StateFolder, *, keys: bool = True) -> RunnerBus:
    """Return the bus of a route; with `keys` it goes by the root that this runner remembers of it."""
    name, _, bus_id = route.partition("#")
    bus = open_bus(name, repository=_repository(name), state=state.bus, clock=CLOCK, expect_id=bus_id or None)
    if keys:
        bus.use_root(KnownKeys(state.root, "").remember_root)
    return bus


def _repository(route: str) -> Path | None:
    """Return the clone around us when the route is the name of one of its remotes."""
    if "/" in route or ":" in route:
        return None
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)


HANDLERS: dict[str, Callable[[argparse.Namespace], int]] = {
    "serve": _serve,
    "once": _once,
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
}
