"""Which f_theta a command line asks for."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.errors import UsageError
from engine.loading import own_restoration
from engine.structure.layout import CacheLayout


def add_restoration_option(parser: argparse.ArgumentParser) -> None:
    """Add which f_theta restores evicted rows."""
    parser.add_argument(
        "--restoration",
        metavar="FOLDER",
        help="folder or name of the f_theta for a layout with +fthetaRANK (default: the one named like the target with "
        "-fthetaRANK behind)",
    )


def chosen_restoration(named: str | None, layout: str | None, target: Path) -> str | None:
    """Return the f_theta asked for, else the one that belongs to the target; None where ``layout`` restores nothing.

    Raises:
        UsageError: If one is needed and none is known for the target, or one is named and none is needed.
    """
    rank = None if layout is None else CacheLayout.parse(layout).rank
    if rank is None and named is not None:
        raise UsageError(f"--restoration {named}: --cache {layout} restores nothing; expected one with +fthetaRANK")
    return None if rank is None else named or own_restoration(target, rank)
