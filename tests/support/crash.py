"""A runner that dies by KILL around one journal event; run as `python -m tests.support.crash SCENARIO.json`."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from bridge.bus import open_bus
from bridge.presets import load
from bridge.runner.host import Host, StateFolder
from bridge.runner.policy.file import load_policy
from bridge.runner.service.serve import assemble, once
from bridge.runner.state.journal import Journal
from bridge.system.clock import SystemClock
from bridge.system.durable import NameLock

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


def make_host(state: StateFolder, policy: Path, journal: type[Journal] = Journal) -> Host:
    """Return a host with the counting preset; the caller holds the lock."""
    clock = SystemClock()
    host = assemble(load_policy(policy), state, clock, lambda line: print(line, file=sys.stderr, flush=True))
    host.journal.close()
    return replace(host, presets={"count": load("count", PRESET.encode())}, journal=journal(state.journal, clock))


def run(scenario: dict[str, str], journal: type[Journal] = Journal) -> int:
    """Take one request to its end, or die on the way."""
    state = StateFolder(Path(scenario["state"]))
    state.create()
    with NameLock(state.lock).held():
        host = make_host(state, Path(scenario["policy"]), journal)
        bus = open_bus(scenario["bus"], repository=None, state=state.bus, clock=host.clock)
        try:
            return once(host, bus)
        finally:
            host.journal.close()


def main() -> int:
    scenario = json.loads(Path(sys.argv[1]).read_text())
    CrashingJournal.event, CrashingJournal.when = scenario["event"], scenario["when"]
    return run(scenario, CrashingJournal)


if __name__ == "__main__":
    sys.exit(main())
