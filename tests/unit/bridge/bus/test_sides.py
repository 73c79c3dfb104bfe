"""Which verbs of a bus belong to a requester, a runner, or both."""

from __future__ import annotations

from bridge.bus.sides.requester import RequesterBus
from bridge.bus.sides.runner import RunnerBus
from bridge.bus.sides.shared import SharedBus


def verbs(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_only_shared_verbs_belong_to_both_sides() -> None:
    assert verbs(RequesterBus) & verbs(RunnerBus) == verbs(SharedBus)
