"""Which f_theta a command line asks for."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.errors import UsageError
from engine.loading import ELSEWHERE, own_restoration
from engine.structure.layout import CacheLayout


def add_restoration_option(parser: argparse.ArgumentParser) -> None:
    """Add which f_theta restores evicted rows."""
    parser.add_argument(
        "--restoration",
        metavar="FOLDER",
        help="folder or name of the f_theta for a layout with +fthetaRANK (default: the one named like the target with "
        "-fthetaRANK behind); with @remote behind it grpc:ADDRESS, where `distributed serve --restoration` has one "
        "(default: where --drafter grpc:ADDRESS is)",
    )


def chosen_restoration(named: str | None, layout: str | None, target: Path, drafter: str | None = None) -> str | None:
    """Return the f_theta asked for, else the one that belongs to the target; None where ``layout`` restores nothing.

    Where rows are made elsewhere it is an address: the one that is named, else that of the drafter.

    Raises:
        UsageError: If one is needed and none is known for the target, or one is named and none is needed.
    """
    parsed = None if layout is None else CacheLayout.parse(layout)
    rank = None if parsed is None else parsed.rank
    if parsed is not None and parsed.remote is not None:
        return _address(named, parsed, drafter)
    if rank is not None and named is not None and named.startswith(ELSEWHERE):
        raise UsageError(f"--restoration {named} is an address: expected it with +ftheta{rank}@remote in --cache")
    if rank is None and named is not None:
        raise UsageError(f"--restoration {named}: --cache {layout} restores nothing; expected one with +fthetaRANK")
    return None if rank is None else named or own_restoration(target, rank)


def _address(named: str | None, layout: CacheLayout, drafter: str | None) -> str:
    """Return ``grpc:ADDRESS`` of the host that makes rows.

    Raises:
        UsageError: If none is named, or a folder.
    """
    if named is not None and not named.startswith(ELSEWHERE):
        raise UsageError(
            f"--restoration {named}: --cache {layout} has rows made elsewhere; expected grpc:ADDRESS of a host that "
            "serves that f_theta"
        )
    served = [name for name in (drafter or "").split(",") if name.startswith(ELSEWHERE)]
    if named is None and len(served) != 1:
        raise UsageError(
            f"--cache {layout}: no host is named that makes rows; start `kakeya-engine distributed serve --restoration "
            "FOLDER` and name its address with --restoration grpc:ADDRESS, or --drafter grpc:ADDRESS"
        )
    return named or served[0]
