"""What commands import and build on first use, for the process that others part from."""

# ruff: noqa: F401 (imported to be there)
from __future__ import annotations

import gc
from importlib import import_module

import bridge.bus.open.embedded
import bridge.bus.store.git
import bridge.cli.host.main
import bridge.cli.mac.main
import bridge.cli.mac.program
import bridge.client.connection.embedded
import bridge.executor.local
import tests.support.crash
from bridge.cli.table.commands import MAC
from bridge.cli.table.runner_commands import RUNNER
from bridge.executor.holder.program import preload
from bridge.gate.registry import rules
from bridge.presets.installed import registry

for command in (*MAC.verbs, *RUNNER.verbs):
    import_module(command.handler.partition(":")[0])
preload()
registry()
rules()
gc.freeze()
