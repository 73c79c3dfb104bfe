"""A runner over a bus in memory."""

from __future__ import annotations

from tests.support.runner_world import clock, world

__all__ = ["clock", "world"]
