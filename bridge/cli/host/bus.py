"""`kakeya-runner bus`: what a bus allows, and what its remote does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.bus.refs.spaces import check_patterns, pattern_of
from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.system.clock import Clock

Say = Callable[[str], None]


def allow_branches(open_bus: Callable[[], RunnerBus], folder: Path, space: str, clock: Clock, say: Say) -> int:
    """Let a bus take requests on the branches of one more space, in its record and in the root where there is one.

    Args:
        open_bus: opens the bus, which nobody asked for its record yet.
        folder: where this account keeps the keys of buses that it owns.
        space: what stands before the slash in an agent's branch names.
        clock: the machine's clocks.
        say: takes lines for people.

    Raises:
        UsageError: no such space can be taken, or another account owns the bus.
    """
    from bridge.runner.maintenance.owner import BusOwner

    pattern = pattern_of(space)
    bus = open_bus()
    owner = BusOwner(bus, folder, clock)
    record = bus.identity()
    if pattern in record.request_branches:
        say(f"{bus.route} takes requests on {pattern} already")
        return 0
    changed = record.evolve(request_branches=(*record.request_branches, pattern))
    check_patterns(changed.request_branches)
    if bus.has_branch(space.removesuffix("/")):
        raise UsageError(f"{bus.route} has a branch {space!r}; git allows no other below its name")
    if bus.root_tip is not None:
        owner.change(lambda content: replace(content, record=changed))
    bus.update(changed)
    say(f"{bus.route} takes requests on {pattern} from now on; clones on a branch below {space} find it by themselves")
    return 0
