"""`kakeya-runner serve` and `once`: hold the runner's name, put the runner together, end in the right code."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.bus import open_bus
from bridge.cli.host.places import bus_of, policy_path, state_of
from bridge.cli.host.signing import enrol, enrol_own
from bridge.cli.screen.answer import Answer
from bridge.cli.talk import CLOCK, say
from bridge.errors import BusMovedError, UsageError
from bridge.runner.authorisation.ticket import Ticket, parse_ticket, piped_ticket, read_ticket, take_variable
from bridge.runner.policy.file import builtin_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.policy_file import PolicyFile
from bridge.runner.service.ephemeral import ephemeral_policy, ephemeral_state, join, once_ephemeral
from bridge.runner.service.serve import (
    once,
    runner_on,
    serve,
    serve_embedded,
    stopping_on_signals,
)
from bridge.runner.state.folder import StateFolder
from bridge.runner.state.log import new_log
from bridge.runner.state.waiting import write_moved
from bridge.system.clock import rfc3339
from bridge.system.durable import NameLock

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import OnceOptions, ServeOptions
    from bridge.runner.service.loop import Runner

TICKET_VARIABLE: Final = "KAKEYA_TICKET"


@contextmanager
def _runner(
    options: ServeOptions | OnceOptions,
    stopping: threading.Event,
    summary: Callable[[str], None] | None = None,
    leaving: threading.Event | None = None,
) -> Iterator[tuple[Runner, str]]:
    """Hold the runner's name and put it together; the second value says what it serves."""
    file = PolicyFile(policy_path(options), CLOCK)
    policy, state = file.started, state_of(options)
    with NameLock(state.lock).held(), _noting_a_move(state):
        if options.rehash:
            state.model_digests.unlink(missing_ok=True)
        bus, log = bus_of(options, policy, state), new_log(sys.stderr, policy.secrets.values())
        enrol(bus, state, policy.name, say)
        with runner_on(
            bus, policy, state, clock=CLOCK, stopping=stopping, log=log, leaving=leaving, summary=summary,
            policy_file=file,
        ) as runner:  # fmt: skip
            digest = policy.digest(embedded=False)
            yield runner, f"runner {policy.name} serves {bus.route}, policy {digest[:12]}, state {state.root}"


@contextmanager
def _noting_a_move(state: StateFolder) -> Iterator[None]:
    """Write down for `status` that the bus is at another remote."""
    try:
        yield
    except BusMovedError as error:
        with suppress(OSError):  # it decides nothing
            write_moved(state.queue, error, rfc3339(CLOCK.now()))
        raise


def serve_command(call: HostCall[ServeOptions]) -> Answer:
    """Take requests until stopped, drained or idle."""
    options = call.options
    if options.embedded is not None:
        return _serve_embedded(options, options.embedded)
    leaving = threading.Event()  # a signal is a restart or an upgrade: what runs goes on
    with (
        _runner(options, threading.Event(), leaving=leaving) as (runner, what),
        stopping_on_signals(leaving) as signals,
    ):
        runner.log.info(what)
        serve(runner, idle_s=options.idle)
    return Answer(exit_code=signals.exit_code(0))


def _serve_embedded(options: ServeOptions, folder: str) -> Answer:
    from bridge.bus.open.embedded import embedded_folder, ensure_embedded, tidy_embedded
    from bridge.limits import EMBEDDED_IDLE_S

    data = Path(folder)
    route = ensure_embedded(data, CLOCK)
    state = StateFolder(embedded_folder(data) / "runner")
    state.create()
    path = policy_path(options)
    file = PolicyFile(path, CLOCK) if path.exists() else None
    policy = builtin_policy(os.environ) if file is None else file.started
    bus = open_bus(str(route), repository=None, state=state.bus, clock=CLOCK)
    idle_s = EMBEDDED_IDLE_S if options.idle is None else options.idle
    with stopping_on_signals(threading.Event()) as signals:
        served = serve_embedded(
            bus, policy, state, clock=CLOCK, stopping=signals.stopping, idle_s=idle_s,
            log=new_log(sys.stderr, policy.secrets.values()),
            enrol=lambda: enrol_own(bus, state, policy.name, say), policy_file=file,
        )  # fmt: skip
        if not served:
            say("another process serves the embedded bus already")
    if served and not signals.caught:
        tidy_embedded(data)
    return Answer(exit_code=signals.exit_code(0))


def once_command(call: HostCall[OnceOptions]) -> Answer:
    """Take one request to its end, and end in its exit code."""
    options = call.options
    branch = options.branch
    if branch is not None and not branch.startswith("refs/"):
        branch = f"refs/heads/{branch}"
    summary = call.output.data if options.summary else None
    if options.ephemeral:
        return _once_ephemeral(options, branch, summary)
    for_ephemeral = {"--ticket": options.ticket, "--wait-up-to": options.wait_up_to}
    given = [option for option, value in for_ephemeral.items() if value is not None]
    if given:
        raise UsageError(f"{' and '.join(given)} without --ephemeral", remedy="kakeya-runner once --help")
    stopping = threading.Event()
    with _runner(options, stopping, summary) as (runner, _), stopping_on_signals(stopping) as signals:
        code = once(runner, branch=branch)
    return Answer(exit_code=signals.exit_code(code))


def _once_ephemeral(options: OnceOptions, branch: str | None, summary: Callable[[str], None] | None) -> Answer:
    """Be a runner for one request and leave nothing."""
    if options.create_bus:
        raise UsageError("--ephemeral joins a bus that is there", remedy="kakeya-runner setup --bus ROUTE --create-bus")
    ticket = _ticket(options)
    suffix = secrets.token_hex(3)
    file = PolicyFile(policy_path(options), CLOCK, lambda policy: ephemeral_policy(policy, ticket, suffix))
    policy = file.started
    parent = None if options.state is None else Path(options.state).resolve()
    stopping = threading.Event()
    with stopping_on_signals(stopping) as signals, ephemeral_state(parent, CLOCK) as state:
        bus, log = bus_of(options, policy, state, None if ticket is None else ticket.bus_id), _log(policy, ticket)
        log.info(join(bus, policy, state, ticket, CLOCK))
        with runner_on(
            bus, policy, state, clock=CLOCK, stopping=stopping, log=log, summary=summary, policy_file=file
        ) as runner:
            try:
                code = once_ephemeral(runner, branch=branch, wait_s=options.wait_up_to or 0.0, say=log.info)
            finally:
                runner.withdraw()
    return Answer(exit_code=signals.exit_code(code))


def _ticket(options: OnceOptions) -> Ticket | None:
    """Return the ticket that an option or the environment names; no child of ours gets to see the latter."""
    text = take_variable(TICKET_VARIABLE)
    if options.ticket == "-":
        return piped_ticket(None if sys.stdin is None else sys.stdin.buffer)  # None: it was started with it closed
    if options.ticket is not None:
        return read_ticket(Path(options.ticket))
    return None if not text else parse_ticket(text.encode(), TICKET_VARIABLE)


def _log(policy: Policy, ticket: Ticket | None) -> logging.Logger:
    return new_log(sys.stderr, [*policy.secrets.values(), *([] if ticket is None else [ticket.key])])
