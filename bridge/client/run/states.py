"""Where a run is, read off a view of the bus. Pure: a view in, a state out; time comes from the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from bridge.bus.views import RunView

StateName = Literal["unknown", "queued", "claimed", "started", "judging", "published"]

_WORDS: Final[dict[StateName, str]] = {
    "unknown": "not on the bus",
    "queued": "queued",
    "claimed": "claimed",
    "started": "running",
    "judging": "judging",
    "published": "done",
}


@dataclass(frozen=True)
class RunState:
    """One of the five states of a run, or ``unknown``.

    Attributes:
        detail: what people want to know beside the word, may be empty.
    """

    name: StateName
    detail: str = ""

    @property
    def terminal(self) -> bool:
        """Whether nothing follows."""
        return self.name == "published"

    @property
    def word(self) -> str:
        """Return the word people read."""
        return _WORDS[self.name]

    def text(self) -> str:
        """Return word and detail."""
        return f"{self.word} ({self.detail})" if self.detail else self.word


def state_of(view: RunView) -> RunState:
    """Return the state that a view shows."""
    if view.claim is None:
        if view.request is None:
            return RunState("unknown")
        return RunState("queued", "cancel asked" if view.cancel_asked else "")
    claim = view.claim.claim
    if claim.state == "terminal":
        return RunState("published")
    asked = "cancel asked" if view.cancel_asked else ""
    if claim.state == "claimed":
        return RunState("claimed", asked)
    if claim.phase in {"judging", "publishing"}:
        return RunState("judging", asked)
    return RunState("started", asked)


class LeaseWatch:
    """Decides that a runner is gone: its claim's tip unchanged for the lease, on the observer's own clock.

    No timestamp somebody else wrote takes part.
    """

    def __init__(self) -> None:
        self._tip: str | None = None
        self._since_s = 0.0

    def expired(self, view: RunView, now_s: float) -> bool:
        """Return whether the claim of this view has been silent for its lease.

        Args:
            view: what was just seen.
            now_s: the observer's steady clock.
        """
        if view.claim is None or view.claim.claim.state == "terminal":
            self._tip = None
            return False
        if view.claim.oid != self._tip:
            self._tip, self._since_s = view.claim.oid, now_s
            return False
        return now_s - self._since_s > view.claim.claim.lease_s
