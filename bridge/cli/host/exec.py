"""`kakeya-runner exec`: what an ssh key may do on this host, as the forced command of an authorized_keys line.

Reads the client's command as data, starts the runner if none holds the lock, and becomes git on this host's own bus.
Kept light: every look at the bus starts it anew.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.bus.open.served import asked_for, ensure_served, serve_git
from bridge.errors import UsageError
from bridge.system.clock import SystemClock
from bridge.system.durable import NameLock

if TYPE_CHECKING:
    from bridge.runner.policy.model import Policy

IDLE_S = 60.0


def execute(arguments: argparse.Namespace) -> int:
    """Serve one ssh connection, run the runner behind it (--serve), or print what the owner needs (--show)."""
    state = _state(arguments)
    if arguments.serve:
        return _serve(arguments, state)
    if arguments.show:
        return _show(arguments, state)
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    if command is None:
        raise UsageError(
            "nobody asked over ssh", remedy="put it into authorized_keys: kakeya-runner exec --show prints the line"
        )
    verb = asked_for(command)
    ensure_served(repository(state), SystemClock())
    if not arguments.no_start:
        _wake(arguments, state)
    serve_git(repository(state), verb, os.environ)
    return 0


def repository(state: Path) -> Path:
    """Return where the bus of a runner's ssh requesters is."""
    return state / "bus.git"


def _state(arguments: argparse.Namespace) -> Path:
    """Return the folder of this transport's own runner, below the runner's state."""
    if arguments.state is not None:
        return Path(arguments.state).resolve() / "ssh"
    from bridge.runner.service.serve import runner_place

    return runner_place(_policy(arguments).name, _policy_path(arguments)).root / "ssh"


def _policy(arguments: argparse.Namespace) -> Policy:
    from bridge.runner.policy.file import load_policy

    return load_policy(_policy_path(arguments))


def _policy_path(arguments: argparse.Namespace) -> Path:
    from bridge.runner.service.serve import default_policy_path

    return default_policy_path() if arguments.policy is None else Path(arguments.policy)


def _wake(arguments: argparse.Namespace, state: Path) -> None:
    """Start the runner unless one holds the lock; it ends by itself some time after nobody has asked for anything."""
    from bridge.system.process import spawn_detached

    lock = NameLock(state / "lock")
    if not lock.try_acquire():
        return
    lock.release()
    argv = [sys.executable, "-P", "-m", "bridge.cli.host.main", "exec", "--serve", "--state", str(state.parent)]
    if arguments.policy is not None:
        argv += ["--policy", str(Path(arguments.policy).resolve())]
    spawn_detached(argv, log=state / "runner.log")


def _serve(arguments: argparse.Namespace, state: Path) -> int:
    from bridge.bus import open_bus
    from bridge.cli.host.keys import enrol_own
    from bridge.cli.talk import say
    from bridge.runner.policy.policy_file import PolicyFile
    from bridge.runner.service.serve import serve_embedded, stopping_on_signals
    from bridge.runner.state.folder import StateFolder
    from bridge.runner.state.log import new_log

    clock, folder = SystemClock(), StateFolder(state, owner=state.parent)
    file = PolicyFile(_policy_path(arguments), clock)
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
    return signals.exit_code(0)


def _show(arguments: argparse.Namespace, state: Path) -> int:
    """Print the bus id, the public key and the authorized_keys line; a first call makes bus and key."""
    from bridge.bus import open_bus
    from bridge.cli.host.keys import enrol_own
    from bridge.cli.talk import say
    from bridge.runner.state.folder import StateFolder
    from bridge.trust.keyring import pin

    policy, clock, folder = _policy(arguments), SystemClock(), StateFolder(state, owner=state.parent)
    ensure_served(repository(state), clock)
    folder.create()
    bus = open_bus(str(repository(state)), repository=None, state=folder.bus, clock=clock)
    enrol_own(bus, folder, policy.name, say)
    record = bus.identity()
    words = [sys.executable, "-P", "-m", "bridge.cli.host.main", "exec", "--state", str(state.parent)]
    if arguments.policy is not None:
        words += ["--policy", str(Path(arguments.policy).resolve())]
    pins = "".join(f" --runner-key {pin(key)}" for key in record.keys[-1:])
    print(f'restrict,command="{shlex.join(words)}" PUBLIC-KEY-OF-THE-REQUESTER')
    say(f"requesters pin it with: kakeya-mac init --bus ssh://USER@HOST#{record.bus_id}{pins}")
    return 0
