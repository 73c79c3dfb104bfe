"""Run a runner: until it is stopped, for one request, or embedded for as long as there is something to do.

Knows how the pieces are put together; prints nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from bridge.bus.interface import RunnerBus
from bridge.errors import InfrastructureError
from bridge.executor import local_executor
from bridge.runner.actions.announce import announcer
from bridge.runner.connection.link import BusLink, link_to
from bridge.runner.host import Host, StateFolder
from bridge.runner.machine.identity import CodeWatch, runner_version
from bridge.runner.policy.allow_lists import host_paths, refuse_exposed_lists
from bridge.runner.policy.file import Policy, own_presets
from bridge.runner.service.loop import Runner
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.attestations import Attesting
from bridge.runner.state.journal import Journal
from bridge.system.clock import Clock
from bridge.system.durable import NameLock
from bridge.trust.runner_seals import RunnerSeals, seals_of


def assemble(
    policy: Policy,
    state: StateFolder,
    clock: Clock,
    say: Callable[[str], None],
    *,
    embedded: bool = False,
    summary: Callable[[str], None] | None = None,
) -> Host:
    """Return a runner's surroundings; the caller holds the name lock of this state folder.

    Raises:
        JournalError: the journal does not hold.
        UsageError: an installed preset is broken, or the policy lets runs read the state folder.
    """
    refuse_exposed_lists(policy, (str(state.root),))
    executor = local_executor(clock, host_paths(policy, state.root))
    # Tried while the bus is being listed: the first run need not wait for it, and the first beacon tells what it is.
    if policy.sandbox.mode != "off":
        threading.Thread(target=executor.sandbox, args=(policy.sandbox.uid,), name="sandbox-trial").start()
    return Host(
        policy=policy,
        embedded=embedded,
        facts=policy.facts(embedded=embedded),
        presets=own_presets(policy),
        executor=executor,
        clock=clock,
        state=state,
        journal=Journal(state.journal, clock),
        attempts=Attempts(state.attempts),
        attesting=Attesting(state.root, policy.name),
        code_watch=CodeWatch(policy.interpreter),
        version=runner_version(),
        say=say,
        announce=announcer(policy.hosting, os.environ, say, summary),
    )


def serve(host: Host, bus: RunnerBus, *, idle_s: float | None = None) -> None:
    """Take requests until the runner is stopped or drained, or nothing has happened for `idle_s`.

    Raises:
        BusError: the remote carries no bus, or another one.
    """
    runner = Runner(host, _linked(host, bus))
    host.state.drain.unlink(missing_ok=True)
    last_s = host.clock.steady_s()
    problem = ""
    while not host.stopping.is_set():
        try:
            waiting = runner.step()
            runner.listed(ok=True)
            problem = ""
        except InfrastructureError as error:
            waiting = 0
            runner.listed(ok=False)
            if error.message != problem:
                host.say(f"trying on: {error.message}")
            problem = error.message
        if runner.busy or waiting:
            last_s = host.clock.steady_s()
        elif host.state.drain.exists() or (idle_s is not None and host.clock.steady_s() - last_s >= idle_s):
            break
        runner.wait()
    runner.join()
    runner.farewell()
    host.state.drain.unlink(missing_ok=True)


def _linked(host: Host, bus: RunnerBus) -> BusLink:
    """Return the bus as this runner uses it; on one of this machine's own nobody else writes, and nothing is signed."""

    def seals() -> RunnerSeals | None:
        return seals_of(host.state.root, host.name, demanded=host.policy.runner_keys, say=host.say)

    return link_to(bus, host.clock, None if host.embedded else seals)


def once(host: Host, bus: RunnerBus, *, branch: str | None = None) -> int:
    """Take one request to its end and return the exit code it ends in; 0 when there is nothing to do.

    Args:
        host: the runner's surroundings.
        bus: where to look.
        branch: full ref name of the request branch, or None for the oldest request.

    Raises:
        InfrastructureError: the bus cannot be listed, or is none.
    """
    runner = Runner(host, _linked(host, bus))
    runner.step(only=branch)
    while runner.busy and not host.stopping.is_set():
        runner.wait()
        runner.look_for_cancels()
    runner.join()
    return runner.outcomes[-1].exit_code if runner.outcomes else 0


def serve_embedded(
    policy: Policy,
    state: StateFolder,
    clock: Clock,
    say: Callable[[str], None],
    bus: RunnerBus,
    *,
    idle_s: float,
    ready: Callable[[Host], None],
    embedded: bool = True,
) -> bool:
    """Serve a bus on this machine until it is idle; return False when another process does so already.

    A request can arrive between the last listing and the unlocking, when its sender still saw the lock taken; so after
    unlocking the bus is listed once more, and if something is pending the lock is taken again.
    """
    lock = NameLock(state.lock)
    while True:
        if not lock.try_acquire():
            return False
        try:
            host = assemble(policy, state, clock, say, embedded=embedded)
            ready(host)
            try:
                serve(host, bus, idle_s=idle_s)
            finally:
                host.journal.close()
            if host.stopping.is_set():
                return True
        finally:
            lock.release()
        if not bus.snapshot().requests:
            return True


def default_state(name: str) -> StateFolder:
    """Return where a runner of this name keeps its state when nobody says otherwise."""
    import platformdirs

    return StateFolder(Path(platformdirs.user_state_path("kakeya")) / "runner" / name)


def default_policy_path() -> Path:
    """Return where the policy file is when nobody says otherwise."""
    import platformdirs

    return Path(platformdirs.user_config_path("kakeya")) / "policy.toml"
