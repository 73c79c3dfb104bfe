"""A bus folder with a runner's real command."""

from __future__ import annotations

from tests.support.runner_site import site

__all__ = ["site"]
