"""A drafter that knows the answer and is right or wrong exactly where it is told to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.drafters.local import LocalDrafter
from engine.types import Draft, DrafterInfo, Features


@dataclass(frozen=True)
class ScriptedModel:
    """Proposes ``answer``, spoilt wherever ``wrong(step, index)`` says so; ``capture`` asks for features it checks."""

    answer: tuple[int, ...]
    prompt_tokens: int
    vocab_size: int
    wrong: Callable[[int, int], bool]
    capture: tuple[int, ...] = ()

    @property
    def info(self) -> DrafterInfo:
        return DrafterInfo(name="scripted", digest=None, format="rule", parameters=0, block_size=None)

    def open(self) -> ScriptedDrafter:
        return ScriptedDrafter(self)


@dataclass
class ScriptedDrafter(LocalDrafter):
    """One sequence of a ``ScriptedModel``; ``observed`` is every token it was shown, in order."""

    model: ScriptedModel
    observed: list[int] = field(default_factory=list)
    forwards: int = 0

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        del bonus
        first = position + 1 - self.model.prompt_tokens
        tokens = list(self.model.answer[first : first + count])
        tokens += [0] * (count - len(tokens))
        for index in range(count):
            if self.model.wrong(self.forwards, index):
                tokens[index] = (tokens[index] + 1) % self.model.vocab_size
        self.forwards += 1
        return Draft(tokens=tuple(tokens), count=count)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        assert start == len(self.observed), "committed positions arrive in order, none twice"
        assert not self.model.capture or features.shape[0] == len(tokens)
        self.observed.extend(tokens)

    def measured_bytes(self) -> int:
        return 0
