"""A cheat: an honest run changed by hand, and the rule that must refuse it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.corpus.gate.breaks import honest
from tests.corpus.gate.builders import Case

CHEATS: dict[str, tuple[str, str, Callable[[], Case]]] = {}
"""Name to (rule, worst decision it may still get, builder)."""


def cheat(
    name: str, rule: str, base: str = "claim", at_best: str = "rejected"
) -> Callable[[Callable[[Case], Any]], None]:
    def register(change: Callable[[Case], Any]) -> None:
        def build() -> Case:
            case = honest(base)
            return (change(case) or case).seal()

        CHEATS[name] = (rule, at_best, build)

    return register
