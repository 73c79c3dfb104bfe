"""Compare a wall clock with the newest moments that runners wrote: which of them is behind, and what to do about it.

A moment in the past says nothing of a clock, as it may have been long ago; one in the future does. Nobody's clock is
right by itself: two that agree count against one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from bridge.diagnostics import Check

OFF_S: Final = 600.0
AGREEING_COUNT: Final = 2


def check_clock(now: dt.datetime, moments: Mapping[str, dt.datetime]) -> Check:
    """Return what runners' moments say of a clock.

    Args:
        now: by the clock that is checked, with a time zone.
        moments: when each runner sent its newest beacon, by its own clock.
    """
    ahead_s = {name: (moment - now).total_seconds() for name, moment in moments.items()}
    off = {name: seconds for name, seconds in ahead_s.items() if seconds > OFF_S}
    agreeing_count = sum(abs(seconds) <= OFF_S for seconds in ahead_s.values())
    shown = f"{now.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    if not off:
        return Check("clock", "ok", shown)
    by = dt.timedelta(seconds=round(sorted(off.values())[len(off) // 2]))
    text = f"this clock ({shown}) is {by} behind the clocks of {', '.join(sorted(off))}"
    if len(off) >= AGREEING_COUNT and len(off) > agreeing_count:
        return Check("clock", "warn", text, "set the time of this machine: requests from the future are refused")
    return Check("clock", "warn", text, "compare the time of both: requests from the future are refused")
