"""`kakeya-runner logs`, `state show`, `gc`: what a runner wrote down, and what may go of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bridge.cli.host.places import bus_of, policy_of, route_of, signing_bus, state_of
from bridge.cli.screen.answer import Answer, Talk
from bridge.cli.talk import CLOCK
from bridge.errors import KakeyaError
from bridge.runner.state.log import LEVELS, read_log, shown

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import GcOptions, LogsOptions, StateOptions

_FOLLOW_S: Final = 0.3
_GC_FETCHES: Final = 5000


def gc(call: HostCall[GcOptions]) -> Answer:
    """Delete old files of this runner, and refs of runs that ended long ago."""
    options, policy, state = call.options, policy_of(call.options), state_of(call.options)
    old = list(state.old_files(CLOCK.now().timestamp() - options.older_than))
    for path in old:
        call.output.data(str(path))
        if not options.dry_run:
            path.unlink(missing_ok=True)
    count = len(old)
    if route_of(options, policy) is not None:
        from bridge.bus.store.gather import WorkBudget

        bus, budget = signing_bus(bus_of(options, policy, state), policy, state), WorkBudget(_GC_FETCHES)
        for name in bus.archive(policy.name, budget=budget, drop_after_s=options.older_than, dry_run=options.dry_run):
            call.output.data(name)
            count += 1
    return Answer(lines=[Talk("gc", f"{count} {'would go' if options.dry_run else 'removed'}")])


def state(call: HostCall[StateOptions]) -> Answer:
    """Show what the state file holds, or a run's events; 1 where its chain is broken."""
    from bridge.runner.maintenance.state_view import event_lines, state_lines

    path, run = state_of(call.options).database, call.options.run
    if not path.exists():
        return _nothing(path)
    try:
        for line in state_lines(path) if run is None else event_lines(path, run):
            call.output.data(line)
    except KakeyaError as error:
        return Answer(lines=[Talk("error", f" {error.message}")], exit_code=1)
    return Answer()


def logs(call: HostCall[LogsOptions]) -> Answer:
    """Print the runner's own log; text that others wrote moves no cursor."""
    options, path = call.options, state_of(call.options).log
    if not (options.follow or path.exists()):
        return _nothing(path)
    wait = (lambda: CLOCK.sleep(_FOLLOW_S)) if options.follow else None
    try:
        for entry in read_log(path, wait):
            ours = options.run is None or str(entry.get("run")).endswith(options.run.lower())
            if ours and LEVELS[entry["level"]] >= LEVELS[options.level]:
                for text in [json.dumps(entry)] if options.json else shown(entry):
                    call.output.text(text)
    except KeyboardInterrupt:
        return Answer(exit_code=130)
    return Answer()


def _nothing(path: Path) -> Answer:
    return Answer(lines=[Talk("note", f"nothing has happened yet: there is no {path}")])
