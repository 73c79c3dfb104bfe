"""Which verbs of a bus belong to a requester, a runner, or both."""

from __future__ import annotations

from bridge.bus.interface import RequesterBus, RunnerBus, SharedBus
from bridge.bus.refbus import RefBus


def verbs(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_only_shared_verbs_belong_to_both_sides() -> None:
    assert verbs(RequesterBus) & verbs(RunnerBus) == verbs(SharedBus)


def test_an_implementation_offers_the_verbs_of_both_sides_and_no_others() -> None:
    assert verbs(RefBus) == verbs(RequesterBus) | verbs(RunnerBus)
