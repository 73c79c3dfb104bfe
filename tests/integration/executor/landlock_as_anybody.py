"""Try Landlock alone as this very user, with the kernel's own version and with each older one; prints JSON.

Started by test_landlock.py. Older kernels are stood in for by using no more of Landlock than they know.
"""

from __future__ import annotations

import json
from functools import partial

from bridge.executor.interface import HostPaths, RunKind
from bridge.executor.sandbox import landlock
from bridge.executor.trial import try_one
from bridge.system.clock import SystemClock


def main() -> None:
    outcomes = {}
    for abi in range(1, landlock.kernel_abi() + 1):
        enclose = partial(landlock.enclose, abi=abi)
        trial = try_one(SystemClock(), None, enclose, HostPaths(), RunKind("host"), mounts=False)
        reached = [escape.what for escape in trial.escapes if not escape.refused]
        outcomes[abi] = [trial.applied.kind, trial.applied.reason, len(trial.escapes), reached, trial.applied.uid]
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
