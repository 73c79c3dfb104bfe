"""What the end of an execution means for its run, before the gate has looked."""

from __future__ import annotations

from bridge.executor.interface import Execution
from bridge.run.outcomes import Ending, one_line


def of_execution(execution: Execution) -> Ending:
    """Return the ending of an execution as far as the executor knows: the gate has not looked yet."""
    message = None if execution.message is None else one_line(execution.message)
    if execution.ending in ("timed_out", "cancelled", "interrupted"):
        return Ending(execution.ending, message)
    if execution.ending == "revoked":
        return Ending("policy_refused", message)
    if not execution.ok or execution.ending in ("killed", "not_started"):
        return Ending("infrastructure", message)
    if execution.ending == "limit":
        return Ending("program_failed", message or "a limit ended the run")
    if execution.program_exit != 0:
        return Ending("program_failed", message or f"the program ended with exit code {execution.program_exit}")
    return Ending("passed", message)
