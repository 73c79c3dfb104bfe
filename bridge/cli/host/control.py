"""`kakeya-runner stop`, `drain`, `pause`, `resume`, `status`: what goes through a runner's state folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from bridge.cli.host.places import state_named, state_of
from bridge.cli.screen.answer import Answer, Talk
from bridge.cli.talk import CLOCK
from bridge.client.document.untrusted import clean_line
from bridge.errors import InfrastructureError, RunNotFoundError, UsageError
from bridge.executor.holder.folder import RunFolder
from bridge.runner.state.folder import RUNS_TOO, StateFolder
from bridge.system.durable import NameLock, write_atomically

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import DrainOptions, PlaceOptions, StatusOptions, StopOptions

_STOP_S: Final = 60.0
_LOOK_S: Final = 0.2


def stop(call: HostCall[StopOptions]) -> Answer:
    """End the runner and wait until it has gone; what runs goes on, unless it is to end as well."""
    if call.options.run is not None:
        return _stop_run(state_of(call.options), call.options.run)
    return _stop(_ordered(call.options), runs_too=call.options.runs)


def _stop(state: StateFolder, *, runs_too: bool) -> Answer:
    going = _going(state)
    if not _is_running(state):
        if runs_too:
            _end(state, going)
        return _note(f"no runner is running here; {_count(going, ended=runs_too)}")
    stop_runner(state, runs_too=runs_too)
    return _note(f"the runner has ended; {_count(going, ended=runs_too)}")


def _note(text: str) -> Answer:
    return Answer(lines=[Talk("note", text)])


def stop_runner(state: StateFolder, *, runs_too: bool) -> None:
    """End the runner of a state folder and wait until it has gone.

    Args:
        state: its folder.
        runs_too: whether what it runs ends as well.

    Raises:
        InfrastructureError: it does not end.
    """
    # Whole at once, and for another user than ours to read: root may give the order to a service.
    write_atomically(state.stop, (RUNS_TOO if runs_too else "").encode("ascii"), durable=False, mode=0o644)
    if not _gone(lambda: _is_running(state)):
        text = f"the runner has not ended within {_STOP_S:.0f} s"
        raise InfrastructureError(text, remedy="kakeya-runner logs, then stop its process")


def _gone(is_there: Callable[[], object]) -> bool:
    """Wait, not for ever, until something is there no more; return whether it has gone."""
    deadline_s = CLOCK.steady_s() + _STOP_S
    while is_there():
        if CLOCK.steady_s() >= deadline_s:
            return False
        CLOCK.sleep(_LOOK_S)
    return True


def _stop_run(state: StateFolder, name: str) -> Answer:
    """End one run; its runner, or the next start of it, publishes what it came to.

    Raises:
        RunNotFoundError: no run of this id goes on here, or several do.
    """
    folders = [folder for folder in _going(state) if folder.root.name.endswith(name.lower())]
    if len(folders) != 1:
        names = ", ".join(folder.root.name for folder in folders or _going(state)) or "nothing"
        count = "more than one run of this host" if folders else "no run of this host"
        raise RunNotFoundError(f"{count} goes by {name!r}; what goes on: {names}", remedy="kakeya-runner status")
    [folder] = folders
    folder.stop("interrupted")
    if not _gone(folder.taken):
        text = f"{folder.root.name} has not ended within {_STOP_S:.0f} s"
        raise InfrastructureError(text, remedy="kakeya-runner logs")
    return _note(f"{folder.root.name} ended as interrupted")


def status(call: HostCall[StatusOptions]) -> Answer:
    """Say what runs, what waits and what ran last."""
    from bridge.executor.observe import host
    from bridge.runner.maintenance.owner_status import owner_status, status_lines

    state = state_of(call.options)
    report = owner_status(state, host.describe(), CLOCK, alive=_is_running(state))
    data = asdict(report) | {"queue": None if report.queue is None else report.queue.model_dump(mode="json")}
    return Answer(data | {"schema_version": 1}, [clean_line(line) for line in status_lines(report)])


def drain(call: HostCall[DrainOptions]) -> Answer:
    """End the runner after what it is running, or end that now and the runner after it."""
    state = _ordered(call.options)
    if call.options.now:
        return _stop(state, runs_too=True)
    if not _is_running(state):
        return _note(f"no runner is running here; {_count(_going(state), ended=False)}")
    state.drain.touch()
    return _note("the runner ends after what it is running")


def pause(call: HostCall[PlaceOptions]) -> Answer:
    """Let the runner take nothing new."""
    _ordered(call.options).pause.touch()
    return _note("paused; go on with: kakeya-runner resume")


def resume(call: HostCall[PlaceOptions]) -> Answer:
    """Let the runner take requests again."""
    state = _ordered(call.options)
    for order in (state.pause, state.drain, state.stop):
        order.unlink(missing_ok=True)
    return _note("taking requests again")


def _ordered(options: PlaceOptions) -> StateFolder:
    """Return the state folder that an order is left in.

    Raises:
        UsageError: no option names it, and no runner of that name was set up or served: nobody would hear the order.
    """
    state = state_named(options)
    if options.state is None and not state.root.is_dir():
        raise UsageError(
            f"no runner has its state in {state.root}", remedy="give the runner's own --policy FILE or --state DIR"
        )
    return state_of(options)


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
    _gone(lambda: _going(state))


def _count(going: tuple[RunFolder, ...], *, ended: bool) -> str:
    if not going:
        return "nothing was running" if ended else "nothing is running"
    count = "1 run" if len(going) == 1 else f"{len(going)} runs"
    return f"{count} ended as interrupted" if ended else f"{count} left going, which the next start follows"
