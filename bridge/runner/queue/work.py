"""What the runner hands to the thread that will do it: a claim it holds, and how far that run has come.

Knows nothing about threads or the bus.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.bus.views import HeldClaim, ReceivedRequest, RequestRef
from bridge.run.outcomes import Ending
from bridge.runner.state.kept import KeptRun


@dataclass(frozen=True)
class ClaimedRun:
    """A claim we hold and what is to be done with it."""

    ref: RequestRef
    held: HeldClaim
    received: ReceivedRequest | None
    claimed: str
    asked_s: float
    ending: Ending | None = None  # set for runs that are only finalised
    kept: KeptRun | None = None  # set for runs that came to their end before this runner died
