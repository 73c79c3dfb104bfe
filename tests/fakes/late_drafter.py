"""A drafter whose drafts come some tokens after they were asked for, or never."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from engine.drafters.local import LocalDrafter
from engine.drafters.overtaken import Overtaken
from engine.types import Draft, Features


@dataclass
class LateDrafter(LocalDrafter):
    """What ``inner`` drafts, each time as many tokens late as ``late`` says next; nobody's patience helps."""

    inner: Any
    late: Iterator[int] = field(default_factory=lambda: cycle((1, 3, 2, 6)))
    left: int = 0
    draft: Draft = field(default_factory=Draft)
    overtaken: Overtaken = field(default_factory=lambda: Overtaken(0))

    @property
    def forwards(self) -> int:
        return int(self.inner.forwards)

    def round_trip_s(self, source: str) -> float:
        return 0.0

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        self.draft, self.overtaken = self.inner.ask(bonus, position, count), Overtaken(position)
        self.left = next(self.late)
        return Draft(under_way=True, came_s=1e-3)

    def ready(self, bonus: int) -> Draft:
        self.left -= 1
        if self.left > 0:
            return Draft(under_way=True, came_s=1e-3)
        return self.overtaken.left(self.draft, bonus)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        self.overtaken.observe(start, tokens)
        self.inner.observe(start, tokens, features)

    def measured_bytes(self) -> int:
        return int(self.inner.measured_bytes())
