"""What to do about a limit that ended a run: whoever set it may raise it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bridge.client.run.result import Result

_NOT_SET: Final = {
    "disk_free_bytes": "free disk space on the host, then send it again",
    "path_bytes": "let it put its folders less deep into one another",
}
"""What to do about bounds that nobody sets."""


def raise_limit(result: Result | None) -> str | None:
    """Return what to do about the limit that ended a run, with who set it; None where none did."""
    if result is None or result.record is None:
        return None
    name = next((hit.limit for hit in result.record.limits_hit if hit.action == "killed"), None)
    if name is None:
        return None
    if name in _NOT_SET:
        return _NOT_SET[name]
    decisions = () if result.spec is None else result.spec.decisions
    who = next((line for line in decisions if line.startswith(f"limit {name} = ")), f"limit {name}")
    return f"let it take less, or raise {who}"
