"""`kakeya-runner exec`: what an ssh key may do on this host, as the forced command of an authorized_keys line.

Reads the client's command as data, starts the runner if none holds the lock, and becomes git on this host's own bus.
Kept light: every look at the bus starts it anew.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.bus.open.served import asked_for, ensure_served, serve_git
from bridge.cli.screen.answer import Answer, Talk
from bridge.errors import UsageError
from bridge.system.clock import SystemClock
from bridge.system.durable import NameLock

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import ExecOptions
    from bridge.runner.state.folder import StateFolder

IDLE_S = 60.0


def execute(call: HostCall[ExecOptions]) -> Answer:
    """Serve one ssh connection, run the runner behind it (--serve), or print what the owner needs (--show)."""
    options = call.options
    state = _state(options)
    if options.serve:
        return _serve(options, state)
    if options.show:
        return _show(options, state)
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    if command is None:
        raise UsageError(
            "nobody asked over ssh", remedy="put it into authorized_keys: kakeya-runner exec --show prints the line"
        )
    verb = asked_for(command)
    ensure_served(repository(state), SystemClock())
    if not options.no_start:
        _wake(options, state)
    serve_git(repository(state), verb, os.environ)
    return Answer()


def repository(state: Path) -> Path:
    """Return where the bus of a runner's ssh requesters is."""
    return state / "bus.git"


def _state(options: ExecOptions) -> Path:
    """Return the folder of this transport's own runner, below the runner's state."""
    if options.state is not None:
        return Path(options.state).resolve() / "ssh"
    from bridge.cli.host.places import policy_of, state_for

    return state_for(options, policy_of(options).name).root / "ssh"


def _wake(options: ExecOptions, state: Path) -> None:
    """Start the runner unless one holds the lock; it ends by itself some time after nobody has asked for anything."""
    from bridge.system.process import spawn_detached

    lock = NameLock(state / "lock")
    if not lock.try_acquire():
        return
    lock.release()
    spawn_detached([*_exec_words(options, state), "--serve"], log=state / "runner.log")


def _exec_words(options: ExecOptions, state: Path) -> list[str]:
    """Return a command line of this program with the same state and policy, whatever folder it is started in."""
    policy = [] if options.policy is None else ["--policy", str(Path(options.policy).resolve())]
    return [sys.executable, "-P", "-m", "bridge.cli.host.main", "exec", "--state", str(state.parent), *policy]


def _opened(state: Path) -> tuple[RunnerBus, StateFolder]:
    """Return the bus of this transport and its runner's folder, both made where they are not there."""
    from bridge.bus import open_bus
    from bridge.runner.state.folder import StateFolder

    clock, folder = SystemClock(), StateFolder(state, owner=state.parent)
    ensure_served(repository(state), clock)
    folder.create()
    return open_bus(str(repository(state)), repository=None, state=folder.bus, clock=clock), folder


def _serve(options: ExecOptions, state: Path) -> Answer:
    from bridge.cli.host.places import policy_path
    from bridge.cli.host.signing import enrol_own
    from bridge.cli.talk import CLOCK, say
    from bridge.runner.policy.policy_file import PolicyFile
    from bridge.runner.service.serve import serve_embedded, stopping_on_signals
    from bridge.runner.state.log import new_log

    file = PolicyFile(policy_path(options), CLOCK)
    policy = file.started
    bus, folder = _opened(state)
    with stopping_on_signals(threading.Event()) as signals:
        serve_embedded(
            bus, policy, folder, clock=CLOCK, stopping=signals.stopping, idle_s=IDLE_S, embedded=False,
            log=new_log(sys.stderr, policy.secrets.values()),
            enrol=lambda: enrol_own(bus, folder, policy.name, say), policy_file=file,
        )  # fmt: skip
    return Answer(exit_code=signals.exit_code(0))


def _show(options: ExecOptions, state: Path) -> Answer:
    """Return the bus id, the public key and the authorized_keys line; a first call makes bus and key."""
    from bridge.cli.host.places import policy_of
    from bridge.cli.host.signing import enrol_own
    from bridge.cli.talk import say
    from bridge.trust.keyring import pin

    policy, (bus, folder) = policy_of(options), _opened(state)
    enrol_own(bus, folder, policy.name, say)
    record = bus.identity()
    pins = "".join(f" --runner-key {pin(key)}" for key in record.keys[-1:])
    line = f'restrict,command="{shlex.join(_exec_words(options, state))}" PUBLIC-KEY-OF-THE-REQUESTER'
    pinning = f"requesters pin it with: kakeya-mac init --bus ssh://USER@HOST#{record.bus_id}{pins}"
    return Answer(lines=[line, Talk("note", pinning)])
