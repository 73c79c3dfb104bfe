"""The machine that runs jobs: its executor, its installed code, its version of Kakeya."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import platformdirs

from bridge.executor import local_executor
from bridge.executor.engines.executor import EngineExecutor
from bridge.executor.engines.interface import ClusterEngine
from bridge.executor.engines.placed import ClusterQueue, settle_of
from bridge.executor.engines.ray import RayEngine, RayOptions
from bridge.executor.engines.slurm import SlurmEngine, SlurmOptions
from bridge.executor.interface import Executor
from bridge.executor.observe.accelerators.cards import Card, find_cards
from bridge.executor.observe.accelerators.find import VISIBLE_DEVICES, visible
from bridge.hosting.token import read_token_file
from bridge.runner.machine.identity import CodeFacts, CodeWatch
from bridge.runner.policy.allow_lists import host_paths
from bridge.runner.policy.executor import JobOptions
from bridge.runner.policy.model import Policy
from bridge.system.clock import Clock
from bridge.version import VERSION

if TYPE_CHECKING:
    from bridge.executor.local import LocalExecutor

_NOW_S: Final = 1.0
_RECENT_S: Final = 60.0


@dataclass(frozen=True)
class Machine:
    """What a job runs on.

    Attributes:
        version: of the installed bridge.
        cards: its NVIDIA cards; None where there are some and nobody names them.
    """

    executor: Executor
    code_watch: CodeWatch
    version: str
    cards: tuple[Card, ...] | None = ()

    @property
    def code(self) -> CodeFacts:
        """The installed code as it is now; a look that began less than a second ago counts."""
        return self.code_watch.now(_NOW_S)

    @property
    def recent_code(self) -> CodeFacts:
        """The installed code as it was at most a minute ago, for what does not say which code ran."""
        return self.code_watch.now(_RECENT_S)


def policy_executor(
    policy: Policy,
    state: Path,
    clock: Clock,
    trials: Path | None = None,
    *,
    lasts: bool = True,
    identity: Path | None = None,
) -> LocalExecutor | EngineExecutor:
    """Return this machine's executor as a policy has it.

    Args:
        policy: what the owner allows.
        state: the runner's state folder, which no run may see.
        clock: the machine's clocks.
        trials: where outcomes of sandbox trials are kept; None tries anew.
        lasts: whether the runner leaves things for the next one; a run of one that does not ends with its runner.
        identity: where the runner's key is, which no run may see either; None: in the state folder.
    """
    if policy.executor.engine != "local":
        queue = ClusterQueue(engine_of(policy, clock), policy.executor.longest_wait_s, settle_of(state))
        return EngineExecutor(clock, queue, host_paths(policy, state, identity), state / "trials")
    kept = platformdirs.user_state_path("kakeya") if lasts else state
    own_users = kept / "users" if policy.sandbox.own_users else None
    paths = host_paths(policy, state, identity)
    return local_executor(clock, paths, trials, policy.sandbox.socket, own_users, tied=not lasts)


def engine_of(policy: Policy, clock: Clock) -> ClusterEngine:
    """Return the engine of a policy whose runs go to nodes."""
    asked = policy.executor
    if asked.engine == "ray":
        file = asked.token_file

        def token() -> str | None:
            return None if file is None else read_token_file(Path(file)).text

        options = RayOptions(asked.cpus, asked.gpus, asked.memory_bytes, asked.constraints)
        return RayEngine(asked.address, token, options, clock)
    by_label = {
        label: _slurm_options(asked.jobs.get(label, JobOptions()), asked.constraints.get(label))
        for label in asked.meanings()
    }
    return SlurmEngine(_slurm_options(asked), clock, by_label)


def _slurm_options(given: JobOptions, feature: str | None = None) -> SlurmOptions:
    return SlurmOptions(
        given.partition, given.account, given.qos, given.cpus, given.memory, given.gres,
        constraint=feature, modules=given.modules, sbatch=given.sbatch,
    )  # fmt: skip


def this_machine(
    policy: Policy, state: Path, clock: Clock, *, lasts: bool = True, identity: Path | None = None
) -> Machine:
    """Return this machine, with its sandbox being tried in the background.

    It is tried while the bus is being listed: the first run need not wait for it, and the first beacon names it. What
    came of it is kept for every runner of this user, embedded or served, until boot, policy or programs change.

    Args:
        policy: what the owner allows.
        state: the runner's state folder, which no run may see.
        clock: the machine's clocks.
        lasts: as for `policy_executor`.
        identity: as for `policy_executor`.
    """
    trials = platformdirs.user_state_path("kakeya") / "trials" if lasts else None
    executor = policy_executor(policy, state, clock, trials, lasts=lasts, identity=identity)
    executor.warm()
    if policy.sandbox.mode != "off":
        threading.Thread(target=executor.sandbox, args=(policy.sandbox.uid,), name="sandbox-trial").start()
    return Machine(executor, CodeWatch(policy.interpreter), VERSION, cards_of(policy))


def cards_of(policy: Policy) -> tuple[Card, ...] | None:
    """Return the cards that a policy's runs share out: all, or those that its own CUDA_VISIBLE_DEVICES lists."""
    if policy.executor.engine != "local":
        return ()  # the engine shares out what its nodes have
    listed = policy.environment.get(VISIBLE_DEVICES)
    return find_cards(None if listed is None else visible(listed))
