"""Say what this host would do with a request of a preset, without one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from bridge.errors import KakeyaError
from bridge.presets import Trust, explain, find, resolve
from bridge.records import Request, Workload
from bridge.runner.policy.file import own_presets
from bridge.runner.policy.model import Policy
from bridge.system.clock import Clock, rfc3339

_ID = "0" * 26
_OID = "0" * 40


def what_would_run(policy: Policy, name: str, clock: Clock) -> Iterator[str]:
    """Yield the decisions over a request of this preset with its default parameters, unsigned, on a served bus.

    Raises:
        PresetNotFoundError: there is no such preset.
    """
    preset = find(name, own_presets(policy))
    now = clock.now()
    code = Workload(commit=_OID, tree=_OID, origin="", dirty=False) if preset.code == "request" else None
    request = Request(
        id=_ID,
        bus_id="",
        ref="",
        principal="unsigned",
        preset=name,
        params={},
        profile=preset.profiles[0],
        workload=code,
        created=rfc3339(now),
        expires=rfc3339(now + dt.timedelta(hours=1)),
        idempotency_key="0" * 64,
    )
    try:
        yield from explain(resolve(request, preset, policy.facts(embedded=False), Trust()))
    except KakeyaError as error:
        yield f"{error.reason}: {error}"
