"""Whether a program is slower, answered after three looks: a yes or a no, never a number.

Looking after every launch would say yes too often, so there are three looks, each at a third of the error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from bridge.launches.attempts import ShownInterval
from bridge.launches.estimate import Launch, over_launches
from bridge.launches.stopping import BLOCKS, MODELS, PROCESS_PAIRS, LaunchRule
from bridge.launches.wording import FASTER

Word = Literal["faster", "slower"]
LOOKS: Final[Mapping[LaunchRule, tuple[int, int, int]]] = MappingProxyType(
    {MODELS: (8, 13, 20), BLOCKS: (10, 15, 20), PROCESS_PAIRS: (8, 40, 240)}
)
"""After how many launches a rule's run is looked at, where it was asked a question and not for a number."""


def answer(rule: LaunchRule, launches: Sequence[Launch], word: Word, margin: float = FASTER) -> bool | None:
    """Return whether a program is what the word says; None where that is open until the next look.

    Args:
        rule: one of `LOOKS`.
        launches: in the order they ran; only those up to the latest look are read.
        word: what is asked.
        margin: how many times as fast, or as slow, it has to be at least.

    Raises:
        KeyError: a rule without looks.
    """
    looks = LOOKS[rule]
    for count in (look for look in looks if look <= len(launches)):
        ratio = over_launches(launches[:count], rule.blocks)
        if ratio is None:
            continue
        bounds = ShownInterval.of(ratio, len(looks))
        yes = bounds.low > margin if word == "faster" else bounds.high < 1.0 / margin
        no = bounds.high <= margin if word == "faster" else bounds.low >= 1.0 / margin
        if yes or no:
            return yes
    return None if len(launches) < looks[-1] else False
