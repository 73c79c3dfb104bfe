"""In which order arms meet prompts: balanced, and drawn from the run's nonce so that it was not chosen.

Every order that balances the arms occurs equally often in a launch. Which prompt gets which order, and which prompt
comes when, is the order of sha256 values over the nonce: reproducible by anyone, and not known before the run begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.errors import UsageError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Profile:
    """How much a profile measures. ``arms`` are names in declaration order.

    Where a supervisor hands out turns, a launch takes one of ``blocks`` blocks of ``prompts_per_launch`` prompts.
    """

    name: str
    arms: tuple[str, ...]
    prompts_per_launch: int
    warmups: int
    max_new_tokens: int
    blocks: int = 1
    in_turns: bool = False


PROFILES = {
    "smoke": Profile("smoke", ("autoregressive", "speculative"), 6, 1, 48),
    "claim": Profile("claim", ("autoregressive", "autoregressive_again", "speculative"), 12, 2, 256, blocks=5),
}
_SMOKE_PROMPTS = 3
_CLAIM_TOKENS = 64
"""A claim needs ten launches of twelve prompts within 14 minutes, also where others use half of two cores."""


def profile_of(name: str, arms: Mapping[str, tuple[str, ...]], max_new_tokens: int | None) -> Profile:
    """Return how much a profile measures, with a study's own arms by profile and, where asked for, another budget."""
    profile = PROFILES[name]
    return replace(profile, arms=arms[name], max_new_tokens=max_new_tokens or profile.max_new_tokens)


def in_turns(profile: Profile) -> Profile:
    """Return the profile of launches whose turns are handed out: two arms, since the control is a reference alone.

    Its samples are short: more launches say more than longer ones.
    """
    return replace(
        profile,
        arms=(profile.arms[0], profile.arms[-1]),
        prompts_per_launch=_SMOKE_PROMPTS if profile.name == "smoke" else profile.prompts_per_launch,
        max_new_tokens=min(profile.max_new_tokens, _CLAIM_TOKENS),
        in_turns=True,
    )


def shuffled(items: Sequence[Item], *seed: object) -> list[Item]:
    """Return the items in the order of sha256 over the seed and their index."""

    def rank(index: int) -> bytes:
        return hashlib.sha256("/".join(str(part) for part in (*seed, index)).encode()).digest()

    return [items[index] for index in sorted(range(len(items)), key=rank)]


def drawn(items: Mapping[str, Item], *seed: object) -> list[Item]:
    """Return named items in the order of sha256 over the seed and their names: whoever knows both draws it again."""

    def rank(name: str) -> bytes:
        return hashlib.sha256("/".join((*(str(part) for part in seed), name)).encode()).digest()

    return [items[name] for name in sorted(items, key=rank)]


def every_order(arms: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the orders that balance: each arm is in each place, and behind each other arm, equally often.

    A Williams square (E. J. Williams, 1949), or two of them for an odd number of arms: up to three arms all
    permutations, then one or two orders an arm.
    """
    size = len(arms)
    steps = [(place + 1) // 2 if place % 2 else (size - place // 2) % size for place in range(size)]
    rows = {tuple((step + shift) % size for step in steps) for shift in range(size)}
    rows |= {row[::-1] for row in rows} if size % 2 else set()
    return [tuple(arms[index] for index in row) for row in sorted(rows)]


def balanced_orders(arms: Sequence[str], count: int, *seed: object) -> list[tuple[str, ...]]:
    """Return ``count`` orders of the arms, every one that balances equally often, shuffled.

    Raises:
        UsageError: If ``count`` is no multiple of the number of orders.
    """
    orders = every_order(arms)
    if count % len(orders):
        raise UsageError(f"{count} prompts cannot balance {len(orders)} orders of {len(arms)} arms; use a multiple")
    return shuffled(orders * (count // len(orders)), *seed, "orders")
