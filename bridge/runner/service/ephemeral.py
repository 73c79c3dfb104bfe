"""Be a runner for one request on a machine that keeps nothing: its folder, its key and its run go with it.

What a killed one leaves is bounded: its run ends when it does, and the next start on the machine removes its folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bridge.bus.sides.runner import RunnerBus
from bridge.errors import InfrastructureError, UsageError
from bridge.executor.holder.attached import attach
from bridge.executor.holder.folder import RunFolder
from bridge.executor.interface import Execution, Hooks
from bridge.executor.removal import remove_tree
from bridge.executor.sandbox.held_folders import held_folder, sweep
from bridge.limits import EPHEMERAL_DELIVERY_S
from bridge.run.outcomes import OUTCOMES
from bridge.runner.authorisation.ticket import Ticket
from bridge.runner.connection.known_keys import known_keys
from bridge.runner.policy.model import Policy
from bridge.runner.service.loop import Runner
from bridge.runner.state.folder import StateFolder
from bridge.system.clock import Clock, parse_rfc3339
from bridge.trust import runner_key
from bridge.trust.keyring import pin
from bridge.trust.root import fingerprint_in

PREFIX: Final = "kakeya-once-"
_REMOVALS: Final = 40  # tries, while a git call of ours that nobody waits for still writes
_REMOVAL_PAUSE_S: Final = 0.05
_SECOND_S: Final = 1.0  # a retirement ends a key with the second in which it was said, and nothing begins in the rest
_TICKET: Final = "the bus's owner makes one: kakeya-runner trust ticket NAME --for 12h --bus ROUTE"


@contextmanager
def ephemeral_state(parent: Path | None, clock: Clock) -> Iterator[StateFolder]:
    """Yield a state folder that goes with the block, after what killed runners left there has gone.

    Args:
        parent: an existing folder for it; None for that of temporary files.
        clock: the machine's clocks.

    Raises:
        UsageError: there is no such folder.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    if not place.is_dir():
        raise UsageError(f"{place} is no folder", remedy="with --ephemeral, --state names an existing one")
    sweep(PREFIX, place, lambda folder: _end_runs(folder / "runs", clock))
    with held_folder(PREFIX, place) as root:
        state = StateFolder(root, lasts=False)
        state.create()
        try:
            yield state
        finally:
            for _ in range(_REMOVALS):
                if remove_tree(root):
                    break
                clock.sleep(_REMOVAL_PAUSE_S)


def _end_runs(runs: Path, clock: Clock) -> None:
    """End what a killed runner's runs left: their supervisors, or the processes of one that was killed too."""
    hooks = Hooks(on_log=lambda _: None, should_stop=lambda: "interrupted")
    for handle in sorted(runs.iterdir()) if runs.is_dir() else ():
        with suppress(InfrastructureError, OSError):
            found = attach(RunFolder(handle), hooks, clock)
            if found is not None and not isinstance(found, Execution):
                found.wait()


def ephemeral_policy(policy: Policy, ticket: Ticket | None, suffix: str) -> Policy:
    """Return the policy of a runner that takes one request: under the ticket's name, or one of its own.

    Args:
        policy: the owner's.
        ticket: what it signs with, if anything.
        suffix: makes the name of one without a ticket its own.

    Raises:
        UsageError: policy and ticket name different owners of the bus, or runs go to a cluster.
    """
    if policy.executor.engine != "local":  # a job would go on where this runner has gone
        raise UsageError(
            f"--ephemeral runs on this machine, and the policy's runs go to {policy.executor.engine}",
            remedy="leave [executor] out, or: kakeya-runner serve",
        )
    changes: dict[str, object] = {"name": f"{policy.name[:50]}-{suffix}", "slots": 1}
    if ticket is not None:
        if policy.root_key is not None and fingerprint_in(policy.root_key) != ticket.root_key:
            raise UsageError(
                f"the ticket's bus is owned by {ticket.root_key}, and the policy's root_key is another",
                remedy="use a ticket of that owner, or correct root_key in policy.toml",
            )
        changes |= {"name": ticket.name, "root_key": ticket.root_key}
    return policy.model_copy(update=changes)


def join(bus: RunnerBus, policy: Policy, state: StateFolder, ticket: Ticket | None, clock: Clock) -> str:
    """Give the runner its key and make sure that what it signs will count; return what is said of it.

    Raises:
        UsageError: the bus signs its results, and this runner's would be untrusted.
        RootError: the bus is not its ticket's owner's.
    """
    if ticket is None:
        if bus.identity().attestation == "dsse" or bus.root_tip is not None:
            raise UsageError("this bus signs its results, and a runner without a ticket cannot", remedy=_TICKET)
        record = runner_key.generate(state.identity, policy.name)
        return f"signs with a key that is made for this run; it counts for who pins {pin(record)}"
    record = runner_key.adopt(state.identity, ticket.name, ticket.private)
    if parse_rfc3339(ticket.until) <= clock.now():
        raise UsageError(f"the ticket of {ticket.name} ended at {ticket.until}", remedy=_TICKET)
    keys = known_keys(state.identity, policy, bus.route)
    bus.use_root(keys.judge_root)
    bus.identity()
    root, now_s = keys.root(), clock.now().timestamp()
    if root is None or not any(
        (one.name, one.key) == (record.name, record.public) and (one.until is None or one.until > now_s + _SECOND_S)
        for one in root.content.runners
        if not {one.name, one.key} & set(root.content.revoked or {})
    ):
        raise UsageError(f"the bus's root does not list the ticket of {ticket.name}, or no longer", remedy=_TICKET)
    return f"signs as {ticket.name} until {ticket.until}, by a ticket of {ticket.root_key}"


def once_ephemeral(
    runner: Runner, *, branch: str | None = None, wait_s: float = 0.0, say: Callable[[str], None]
) -> int:
    """Wait for one request, take it to its end and deliver its result; return the exit code it ends in, 0 for none.

    Args:
        runner: the runner; nothing of its state stays, so it does not end before its result is delivered.
        branch: full ref name of the request branch, or None for the oldest request that this runner may take.
        wait_s: how long to wait for one.
        say: takes a line for people.

    Raises:
        InfrastructureError: the bus could not be listed.
    """
    runner.take_one()
    _take(runner, branch, runner.clock.steady_s() + wait_s)
    while runner.busy and not runner.asked_to_end():
        runner.wait()
    runner.join()
    late_s = runner.clock.steady_s() + EPHEMERAL_DELIVERY_S
    while (left := runner.unended) and not runner.asked_to_end():
        if runner.clock.steady_s() >= late_s and not runner.busy:  # one that began late is under way
            break
        with suppress(InfrastructureError):  # said in the log; the bus is away, and it is tried again
            runner.step(branch)
        runner.wait()
    # It may have ended another's run as well, whose lease ran out meanwhile.
    own = [one for one in runner.outcomes if one.id == runner.taken]
    if not own:
        if (run_id := runner.held_up) is not None:
            say(f"{run_id} has not begun: the remote did not let it; another runner may take it")
        elif not runner.took_one:
            say("no request came that this runner may take")
        return 0 if run_id is None and not runner.took_one else OUTCOMES["infrastructure"].exit_code
    last = own[-1]
    if last.id in left:
        say(f"the result of {last.id} could not be delivered and is lost; the run ends as runner_lost")
        return OUTCOMES["publish_failed"].exit_code
    return last.ending.exit_code


def _take(runner: Runner, branch: str | None, until_s: float) -> None:
    """List the bus until a request is taken or the time is over."""
    while True:
        try:
            runner.step(branch)
        except InfrastructureError as error:
            if runner.clock.steady_s() >= until_s or runner.asked_to_end():
                raise
            runner.failed()
            runner.log.warning("trying on: %s", error.message)
        if runner.took_one or runner.asked_to_end() or runner.clock.steady_s() >= until_s:
            return
        runner.wait(until_s)
