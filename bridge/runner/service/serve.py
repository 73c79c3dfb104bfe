"""Run a runner: until it is stopped, for one request, or embedded for as long as there is something to do.

Knows how the pieces are put together; prints nothing.
"""

from __future__ import annotations

import logging
import os
import platform
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.bus.sides.runner import RunnerBus
from bridge.errors import BusMovedError, EndedKeyError, GivenUpError, InfrastructureError, of_system
from bridge.limits import BEGIN_AGAIN_S
from bridge.run.outcomes import OUTCOMES
from bridge.runner.actions.announce import announcer
from bridge.runner.actions.notify import NOTIFY_WALL_S, OwnerNotifier, each
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.known_keys import KnownKeys, known_keys
from bridge.runner.connection.link import link_to
from bridge.runner.connection.root_keeper import RootKeeper
from bridge.runner.machine.machine import this_machine
from bridge.runner.policy.allow_lists import refuse_exposed_lists
from bridge.runner.policy.live_presets import LivePresets
from bridge.runner.policy.model import Policy
from bridge.runner.policy.policy_file import PolicyFile
from bridge.runner.service.loop import Runner
from bridge.runner.service.read_back import ReadBack
from bridge.runner.state.audit import audit, keep_audit
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.log import keep_log
from bridge.system.clock import Clock
from bridge.system.durable import NameLock
from bridge.trust.judgement import NOBODY, REVOKED_REMEDY

_LAST_NOTIFY_S: Final = 1.0  # what a runner that is asked to end waits for its owner's program, which goes on alone


@contextmanager
def runner_on(
    bus: RunnerBus,
    policy: Policy,
    folder: StateFolder,
    *,
    clock: Clock,
    stopping: threading.Event,
    log: logging.Logger,
    leaving: threading.Event | None = None,
    embedded: bool = False,
    summary: Callable[[str], None] | None = None,
    policy_file: PolicyFile | None = None,
) -> Iterator[Runner]:
    """Put a runner together and close its state afterwards; the caller holds the name lock of the state folder.

    Args:
        bus: where it takes requests; on one of this machine's own nobody else writes, and nothing is signed.
        policy: what the owner allows when the runner starts.
        folder: the runner's state.
        clock: the machine's clocks.
        stopping: set to end the runner and its runs.
        leaving: set to end the runner alone; None where nobody asks for that.
        log: takes what happens; it is kept in the state folder as well.
        embedded: whether requester and owner are the same person.
        summary: takes the text of the job summary; None appends it to the file that the job names.
        policy_file: where the policy is read again while the runner serves; None: it stays as it is.

    Raises:
        BusError: the remote carries no bus, or another one.
        EndedKeyError: the bus's owner has revoked or retired this runner.
        JournalError: the journal does not hold.
        UsageError: an installed preset is broken, or the policy lets runs read the state folder.
    """
    refuse_exposed_lists(policy, (str(folder.root), str(folder.identity)))

    def say(line: str) -> None:
        log.info(line)
        audit(log, "root", None, text=line)

    keys = None if embedded else known_keys(folder.identity, policy, bus.route, say)
    rules = OwnerRules(
        policy,
        LivePresets(policy, clock, log.info),
        embedded=embedded,
        root=(lambda: None) if keys is None else keys.root,
    )
    machine = this_machine(policy, folder.root, clock, lasts=folder.lasts, identity=folder.identity)
    versions = {"kakeya": machine.version, "python": platform.python_version()}
    state = OpenState.open(folder, policy.name, clock)
    unkeep = keep_log(log, folder.log, versions, policy.secrets.values())
    unaudit = keep_audit(log, policy.audit)
    owner = OwnerNotifier(policy.notify, policy.name, os.environ, log) if policy.notify else None
    try:
        log.debug("began: %s, policy %s, on %s", shlex.join(sys.argv), rules.facts.digest[:12], platform.platform())
        link = link_to(bus, clock, keys)
        _refuse_ended(keys)
        if folder.lasts:
            ReadBack(policy.name, state, link, clock=clock, log=log).compare()
        site = announcer(
            policy.hosting, os.environ, log.info, summary, (lambda: NOBODY) if keys is None else keys.authority
        )
        announce = site if owner is None else each(site, owner)
        keeper = None if keys is None else RootKeeper(link, keys, clock, folder.root_contested, log)
        yield Runner(
            rules,
            machine,
            state,
            link,
            clock=clock,
            stopping=stopping,
            log=log,
            leaving=leaving,
            announce=announce,
            keeper=keeper,
            policy_file=policy_file,
        )
    except BaseException as error:
        log.debug("ends: %s: %s", type(error).__name__, error, exc_info=error)
        raise
    finally:
        if owner is not None:
            asked = stopping.is_set() or (leaving is not None and leaving.is_set())
            owner.finish(_LAST_NOTIFY_S if asked else NOTIFY_WALL_S)
        unaudit()
        unkeep()
        state.close()


def _refuse_ended(keys: KnownKeys | None) -> None:
    """Refuse to serve with a key that the bus's owner has ended.

    Raises:
        EndedKeyError: the owner has.
    """
    if keys is not None and (why := keys.ended()) is not None:
        raise EndedKeyError(why, remedy=REVOKED_REMEDY)


def serve(runner: Runner, *, idle_s: float | None = None) -> None:
    """Take requests until the runner is stopped or drained, or nothing has happened for `idle_s`.

    Raises:
        BusMovedError: the bus's owner moved it; what runs is left to the next start.
    """
    clock, drain, stop = runner.clock, runner.state.folder.drain, runner.state.folder.stop
    for order in (drain, stop):
        order.unlink(missing_ok=True)
    last_s = clock.steady_s()
    problem = ""
    while not runner.asked_to_end():
        try:
            waiting = runner.step()
            problem = ""
        except BusMovedError:
            runner.leaving.set()  # what runs goes on, and the next start delivers it where the bus is then
            runner.join()
            runner.announce_end()
            raise
        except (InfrastructureError, OSError) as error:
            waiting = 0
            runner.failed()
            known = of_system(error) if isinstance(error, OSError) else error
            if known.message != problem and not isinstance(known, GivenUpError):
                runner.log.warning("trying on: %s", known.message)
            problem = known.message
        if runner.busy or waiting:
            last_s = clock.steady_s()
        elif drain.exists() or (idle_s is not None and clock.steady_s() - last_s >= idle_s):
            break
        runner.wait()
    runner.join()
    runner.announce_end()
    for order in (drain, stop):
        order.unlink(missing_ok=True)


def once(runner: Runner, *, branch: str | None = None, patience_s: float = BEGIN_AGAIN_S) -> int:
    """Take one request to its end and return the exit code it ends in; 0 when there is nothing to do.

    Where the remote did not let it come to an end, that is the code of `infrastructure`, and the log says so.

    Args:
        runner: the runner.
        branch: full ref name of the request branch, or None for the oldest request.
        patience_s: how long a run is tried again that the remote does not let be claimed or begin.

    Raises:
        InfrastructureError: the bus cannot be listed.
        TwinError: another runner of this name lives.
    """
    runner.state.folder.stop.unlink(missing_ok=True)
    runner.take_one()
    runner.step(only=branch)
    while runner.is_watching and not runner.asked_to_end():
        runner.wait()
        runner.step(only=branch)
    until_s = runner.clock.steady_s() + patience_s
    while (runner.busy or runner.held_up is not None) and not runner.asked_to_end():
        runner.wait()
        if runner.held_up is not None and not runner.busy:
            if runner.clock.steady_s() >= until_s:
                break
            with suppress(InfrastructureError):  # the bus is away, and is asked again
                runner.step(only=branch)
    runner.join()
    if not runner.asked_to_end():
        runner.tend()
    if (run_id := runner.held_up) is not None:
        runner.log.error("%s has not ended: the remote did not let it; the next start of this runner goes on", run_id)
        return OUTCOMES["infrastructure"].exit_code
    return runner.outcomes[-1].exit_code if runner.outcomes else 0


def serve_embedded(
    bus: RunnerBus,
    policy: Policy,
    folder: StateFolder,
    *,
    clock: Clock,
    stopping: threading.Event,
    log: logging.Logger,
    idle_s: float,
    enrol: Callable[[], None],
    embedded: bool = True,
    policy_file: PolicyFile | None = None,
) -> bool:
    """Serve a bus on this machine until it is idle; return False when another process does so already.

    A request can arrive between the last listing and the unlocking, when its sender still saw the lock taken; so after
    unlocking the bus is listed once more, and if something is pending the lock is taken again.

    What it takes is what `runner_on` takes; `idle_s` is how long it waits for something to do, and `enrol` brings the
    bus record up to this runner's keys, under the lock.
    """
    lock = NameLock(folder.lock)
    while True:
        if not lock.try_acquire():
            return False
        try:
            enrol()
            with runner_on(
                bus, policy, folder, clock=clock, stopping=stopping, log=log, embedded=embedded,
                policy_file=policy_file,
            ) as runner:  # fmt: skip
                serve(runner, idle_s=idle_s)
            if stopping.is_set():
                return True
        finally:
            lock.release()
        if not bus.snapshot().requests:
            return True


@dataclass
class Signals:
    """Signals that were caught, and the flag that they set."""

    stopping: threading.Event
    caught: list[int] = field(default_factory=list)

    def stop(self, number: int, _frame: object) -> None:
        """Note a signal and set the flag."""
        self.caught.append(number)
        self.stopping.set()

    def exit_code(self, otherwise: int) -> int:
        """Return 128 + n after signal n."""
        return 128 + self.caught[0] if self.caught else otherwise


@contextmanager
def stopping_on_signals(stopping: threading.Event) -> Iterator[Signals]:
    """Turn TERM, INT and HUP into an orderly stop; what the flag is decides what becomes of the runs."""
    signals = Signals(stopping)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, signals.stop) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def runner_place(name: str, policy: Path, state: Path | None = None) -> StateFolder:
    """Return where a runner keeps its state, and beside its policy its key.

    Args:
        name: the runner's name.
        policy: its policy file, whether or not it is there.
        state: the state folder that an option names; None for the user's own.
    """
    import platformdirs

    root = Path(platformdirs.user_state_path("kakeya")) / "runner" / name if state is None else state.resolve()
    return StateFolder(root, identity_at=policy.absolute().parent / "identity" / name)


def default_policy_path() -> Path:
    """Return where the policy file is unless an option names another."""
    import platformdirs

    return Path(platformdirs.user_config_path("kakeya")) / "policy.toml"
