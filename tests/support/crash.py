"""A runner that dies by KILL around one journal event; also as `python -m tests.support.crash SCENARIO.json`."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

from bridge.bus import open_bus
from bridge.bus.sides.runner import RunnerBus
from bridge.presets.installed import load
from bridge.runner.actions.announce import announcer
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import link_to
from bridge.runner.machine.machine import this_machine
from bridge.runner.policy.file import load_policy
from bridge.runner.service.loop import Runner
from bridge.runner.service.serve import once
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.journal import Journal
from bridge.runner.state.log import new_log
from bridge.system.clock import SystemClock
from bridge.system.durable import NameLock
from tests.support.forked import Forked

PRESET = """
schema = 1
name = "count"
status = "ready"
description = "append a line to a file, wait a moment, write a report"
gate_profile = "probe"
[[commands]]
name = "count"
argv = ["${engine}", "count"]
[[outputs]]
path = "probe.json"
kind = "environment_probe"
[limits]
wall_s = 60.0
[sandbox]
mode = "off"
"""


class CrashingJournal(Journal):
    """Kills its own process just before or just after an event becomes durable."""

    event = ""
    when = ""

    def append(self, event, run_id, oid=None, **detail):
        if event == self.event and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().append(event, run_id, oid, **detail)
        if event == self.event and self.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)


def make_runner(state: StateFolder, policy_file: Path, bus: RunnerBus, journal: type[Journal] = Journal) -> Runner:
    """Return a runner with the counting preset; the caller holds the lock."""
    clock, policy = SystemClock(), load_policy(policy_file)
    opened = OpenState.open(state, policy.name, clock)
    log = new_log(sys.stderr)
    return Runner(
        OwnerRules(policy, {"count": load("count", PRESET.encode())}), this_machine(policy, state.root, clock),
        replace(opened, journal=journal(opened.database, clock)), link_to(bus, clock),
        clock=clock, stopping=threading.Event(), log=log,
        announce=announcer(policy.hosting, os.environ, log.info),
    )  # fmt: skip


def run(scenario: dict[str, str], journal: type[Journal] = Journal) -> int:
    """Take one request to its end, or die on the way."""
    state = StateFolder(Path(scenario["state"]))
    state.create()
    with NameLock(state.lock).held():
        bus = open_bus(scenario["bus"], repository=None, state=state.bus, clock=SystemClock())
        runner = make_runner(state, Path(scenario["policy"]), bus, journal)
        try:
            return once(runner)
        finally:
            runner.state.close()


def crash(scenario: dict[str, str]) -> int:
    """Run a runner in a process of its own until it dies or is done; return its exit code, negative for a signal."""
    return start(scenario).wait(240)


def start(scenario: dict[str, str]) -> Forked:
    """Start a runner in a process of its own, which dies around the scenario's event if it has one."""
    return Forked(_crash, (scenario,))


def main() -> int:
    return _crash(json.loads(Path(sys.argv[1]).read_text()))


def _crash(scenario: dict[str, str]) -> int:
    CrashingJournal.event, CrashingJournal.when = scenario["event"], scenario["when"]
    return run(scenario, CrashingJournal)


if __name__ == "__main__":
    sys.exit(main())
