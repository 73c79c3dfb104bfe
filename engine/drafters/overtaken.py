"""What is left of a draft that was under way while its target went on: the tokens behind those committed meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.types import Draft
from engine.verification.greedy import accepted_length


@dataclass(slots=True)
class Overtaken:
    """The tokens observed since an ask at ``position``, the bonus of the ask itself first."""

    position: int
    _observed: list[int] = field(default_factory=list)

    def observe(self, start: int, tokens: tuple[int, ...]) -> None:
        """Take committed tokens at ``start`` on, in order."""
        self._observed.extend(tokens[max(0, self.position - start) :])

    def left(self, draft: Draft, bonus: int) -> Draft:
        """Return the draft behind ``bonus``, the newest token; one that says another token than came leaves nothing.

        Reads its tokens where any came meanwhile.
        """
        committed = (*self._observed[1:], bonus) if self._observed else ()
        if not draft.count or not committed:
            return draft
        ids = draft.ids()
        offset, right = min(len(committed), len(ids)), accepted_length(ids, committed)
        rest = ids[offset:] if right == offset else ()
        probs = None if draft.probs is None else draft.probs[offset : offset + len(rest)]
        waits = int(not isinstance(draft.tokens, tuple))
        return replace(draft, tokens=rest, count=len(rest), probs=probs, offset=offset, right=right, waits=waits)
