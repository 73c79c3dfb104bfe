"""The parts of the project that studies are filed under."""

from __future__ import annotations

import argparse

AREAS = ("requester", "bus", "executor", "evidence", "restoration", "distributed", "clusters")


def area(name: str) -> str:
    """Return the name of an area as given.

    Raises:
        argparse.ArgumentTypeError: there is none of that name.
    """
    if name not in AREAS:
        raise argparse.ArgumentTypeError(f"got {name!r}, expected one of {', '.join(AREAS)}")
    return name
