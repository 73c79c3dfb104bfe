"""`kakeya-runner stop`, `drain`, `pause`, `resume`, `status`: what goes through a runner's state folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from bridge.cli.host.places import state_of
from bridge.cli.talk import CLOCK, say
from bridge.client.document.untrusted import clean_line
from bridge.errors import InfrastructureError, RunNotFoundError
from bridge.executor.holder.folder import RunFolder
from bridge.runner.state.folder import RUNS_TOO, StateFolder
from bridge.system.durable import NameLock

_STOP_S: Final = 60.0
_LOOK_S: Final = 0.2


def stop(arguments: argparse.Namespace) -> int:
    """End the runner and wait until it has gone; what runs goes on, unless it is to end as well."""
    state = state_of(arguments)
    if getattr(arguments, "run", None) is not None:
        return _stop_run(state, arguments.run)
    going = _going(state)
    if not _is_running(state):
        if arguments.runs:
            _end(state, going)
        say(f"no runner is running here; {_said(going, ended=arguments.runs)}")
        return 0
    stop_runner(state, runs_too=arguments.runs)
    say(f"the runner has ended; {_said(going, ended=arguments.runs)}")
    return 0


def stop_runner(state: StateFolder, *, runs_too: bool) -> None:
    """End the runner of a state folder and wait until it has gone.

    Args:
        state: its folder.
        runs_too: whether what it runs ends as well.

    Raises:
        InfrastructureError: it does not end.
    """
    state.stop.write_text(RUNS_TOO if runs_too else "", encoding="ascii")
    deadline_s = CLOCK.steady_s() + _STOP_S
    while _is_running(state):
        if CLOCK.steady_s() >= deadline_s:
            raise InfrastructureError(
                f"the runner has not ended within {_STOP_S:.0f} s", remedy="kakeya-runner logs, then stop its process"
            )
        CLOCK.sleep(_LOOK_S)


def _stop_run(state: StateFolder, asked: str) -> int:
    """End one run; its runner, or the next start of it, publishes what it came to.

    Raises:
        RunNotFoundError: no run of this id goes on here, or several do.
    """
    found = [folder for folder in _going(state) if folder.root.name.endswith(asked.lower())]
    if len(found) != 1:
        names = ", ".join(folder.root.name for folder in found or _going(state)) or "nothing"
        said = "no run of this host" if not found else "more than one run of this host"
        raise RunNotFoundError(f"{said} goes by {asked!r}; what goes on: {names}", remedy="kakeya-runner status")
    found[0].stop("interrupted")
    deadline_s = CLOCK.steady_s() + _STOP_S
    while found[0].taken():
        if CLOCK.steady_s() >= deadline_s:
            raise InfrastructureError(
                f"{found[0].root.name} has not ended within {_STOP_S:.0f} s", remedy="kakeya-runner logs"
            )
        CLOCK.sleep(_LOOK_S)
    say(f"{found[0].root.name} ended as interrupted")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Say what runs, what waits and what ran last."""
    from bridge.executor.observe import host
    from bridge.runner.maintenance.owner_status import owner_status, status_lines

    state = state_of(arguments)
    seen = owner_status(state, host.describe(), CLOCK, alive=_is_running(state))
    if arguments.json:
        value = asdict(seen) | {"queue": None if seen.queue is None else seen.queue.model_dump(mode="json")}
        print(json.dumps(value | {"schema_version": 1}, indent=1))
        return 0
    for line in status_lines(seen):
        print(clean_line(line))
    return 0


def drain(arguments: argparse.Namespace) -> int:
    """End the runner after what it is running, or end that now and the runner after it."""
    state = state_of(arguments)
    if arguments.now:
        arguments.runs = True
        return stop(arguments)
    if not _is_running(state):
        say(f"no runner is running here; {_said(_going(state), ended=False)}")
        return 0
    state.drain.touch()
    say("the runner ends after what it is running")
    return 0


def pause(arguments: argparse.Namespace) -> int:
    """Let the runner take nothing new."""
    state_of(arguments).pause.touch()
    say("paused; go on with: kakeya-runner resume")
    return 0


def resume(arguments: argparse.Namespace) -> int:
    """Let the runner take requests again."""
    state = state_of(arguments)
    for order in (state.pause, state.drain, state.stop):
        order.unlink(missing_ok=True)
    say("taking requests again")
    return 0


def _is_running(state: StateFolder) -> bool:
    lock = NameLock(state.lock)
    if not lock.try_acquire():
        return True
    lock.release()
    return False


def _going(state: StateFolder) -> tuple[RunFolder, ...]:
    """Return the runs whose supervisors live."""
    folders = (RunFolder(path) for path in sorted(state.runs.iterdir()))
    return tuple(folder for folder in folders if folder.taken())


def _end(state: StateFolder, going: tuple[RunFolder, ...]) -> None:
    """End runs without a runner; the next start of the runner publishes them."""
    for folder in going:
        folder.stop("interrupted")
    deadline_s = CLOCK.steady_s() + _STOP_S
    while _going(state) and CLOCK.steady_s() < deadline_s:
        CLOCK.sleep(_LOOK_S)


def _said(going: tuple[RunFolder, ...], *, ended: bool) -> str:
    if not going:
        return "nothing was running" if ended else "nothing is running"
    count = "1 run" if len(going) == 1 else f"{len(going)} runs"
    return f"{count} ended as interrupted" if ended else f"{count} left going, which the next start follows"


HANDLERS: dict[str, Callable[[argparse.Namespace], int]] = {
    "stop": stop,
    "status": status,
    "drain": drain,
    "pause": pause,
    "resume": resume,
}
