"""Try the sandbox before anything else, and read what the kernel refused meanwhile: what a model cannot tell of a Mac.

Of a refusal its operation stays and its name, where that is the system's own; a path of somebody's is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from bridge.executor.observe.condition import tool_output
from bridge.executor.trial import try_sandbox
from bridge.system.clock import SystemClock

_LOG: Final = (
    *("/usr/bin/log", "show", "--last", "5m", "--style", "compact", "--predicate"),
    'sender == "Sandbox" AND eventMessage CONTAINS "deny"',
)
_DENIAL: Final = re.compile(r"\bdeny\(\d+\) ([a-z][a-z0-9*-]+)(?: (\S+))?")
_SYSTEM: Final = re.compile(
    r"/(?:System|usr|bin|sbin|Library|dev|opt/homebrew|private/(?:etc|var/db))(?:/|$)|/$|com\.apple\.|[A-Za-z]+UserClient$"
    r"|(?:kern|hw|vm|net\.routetable|machdep|sysctl)\.|/(?:psm_|mp-|__KMP_)|apple\."
)


def walls() -> dict[str, Any]:
    """Return what the trial of the sandbox came to here, and how often the kernel refused what meanwhile."""
    trial = try_sandbox(SystemClock(), None)
    return {
        "applied": trial.applied.model_dump(mode="json", exclude={"uid"}),
        "escapes": {escape.what: escape.refused for escape in trial.escapes},
        "denials": denials(tool_output(*_LOG)),
    }


def denials(text: str) -> dict[str, int]:
    """Return how often each operation was refused, with what it was about where that is the system's own."""
    counts: Counter[str] = Counter()
    for operation, name in _DENIAL.findall(text):
        shown = re.sub(r"\d{2,}", "N", name) if _SYSTEM.match(name) else "<own>" if name else ""
        counts[f"{operation} {shown}".rstrip()] += 1
    return dict(sorted(counts.items()))
