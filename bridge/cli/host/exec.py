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
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import ExecOptions
    from bridge.runner.policy.model import Policy

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
    from bridge.runner.service.serve import runner_place

    return runner_place(_policy(options).name, _policy_path(options)).root / "ssh"


def _policy(options: ExecOptions) -> Policy:
    from bridge.runner.policy.file import load_policy

    return load_policy(_policy_path(options))


def _policy_path(options: ExecOptions) -> Path:
    from bridge.runner.service.serve import default_policy_path

    return default_policy_path() if options.policy is None else Path(options.policy)


def _wake(options: ExecOptions, state: Path) -> None:
    """Start the runner unless one holds the lock; it ends by itself some time after nobody has asked for anything."""
    from bridge.system.process import spawn_detached

    lock = NameLock(state / "lock")
    if not lock.try_acquire():
        return
    lock.release()
    argv = [sys.executable, "-P", "-m", "bridge.cli.host.main", "exec", "--serve", "--state", str(state.parent)]
    if options.policy is not None:
        argv += ["--policy", str(Path(options.policy).resolve())]
    spawn_detached(argv, log=state / "runner.log")


def _serve(options: ExecOptions, state: Path) -> Answer:
    from bridge.bus import open_bus
    from bridge.cli.host.signing import enrol_own
    from bridge.cli.talk import say
    from bridge.runner.policy.policy_file import PolicyFile
    from bridge.runner.service.serve import serve_embedded, stopping_on_signals
    from bridge.runner.state.folder import StateFolder
    from bridge.runner.state.log import new_log

    clock, folder = SystemClock(), StateFolder(state, owner=state.parent)
    file = PolicyFile(_policy_path(options), clock)
    policy = file.started
    ensure_served(repository(state), clock)
    folder.create()
    bus = open_bus(str(repository(state)), repository=None, state=folder.bus, clock=clock)
    with stopping_on_signals(threading.Event()) as signals:
        serve_embedded(
            bus, policy, folder, clock=clock, stopping=signals.stopping, idle_s=IDLE_S, embedded=False,
            log=new_log(sys.stderr, policy.secrets.values()),
            enrol=lambda: enrol_own(bus, folder, policy.name, say), policy_file=file,
        )  # fmt: skip
    return Answer(exit_code=signals.exit_code(0))


def _show(options: ExecOptions, state: Path) -> Answer:
    """Return the bus id, the public key and the authorized_keys line; a first call makes bus and key."""
    from bridge.bus import open_bus
    from bridge.cli.host.signing import enrol_own
    from bridge.cli.talk import say
    from bridge.runner.state.folder import StateFolder
    from bridge.trust.keyring import pin

    policy, clock, folder = _policy(options), SystemClock(), StateFolder(state, owner=state.parent)
    ensure_served(repository(state), clock)
    folder.create()
    bus = open_bus(str(repository(state)), repository=None, state=folder.bus, clock=clock)
    enrol_own(bus, folder, policy.name, say)
    record = bus.identity()
    words = [sys.executable, "-P", "-m", "bridge.cli.host.main", "exec", "--state", str(state.parent)]
    if options.policy is not None:
        words += ["--policy", str(Path(options.policy).resolve())]
    pins = "".join(f" --runner-key {pin(key)}" for key in record.keys[-1:])
    line = f'restrict,command="{shlex.join(words)}" PUBLIC-KEY-OF-THE-REQUESTER'
    pinning = f"requesters pin it with: kakeya-mac init --bus ssh://USER@HOST#{record.bus_id}{pins}"
    return Answer(lines=[line, Talk("note", pinning)])
