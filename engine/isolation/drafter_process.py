"""A drafter's server in a process of its own, ended with ours."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from engine.isolation.children import ServingChild
from engine.loading import NGRAM

SERVING = "serving at "
"""What the line begins with that a server writes once it can be asked."""


class DrafterProcess(ServingChild):
    """A running ``kakeya-engine distributed serve`` on a port of this machine that it chose.

    Raises:
        ChildError: If it ends before it serves.
    """

    def __init__(self, options: Sequence[str]) -> None:
        super().__init__("the drafter's server", "engine.cli", ["distributed", "serve", "--until-eof", *options])
        self.address = self.first_line.removeprefix(SERVING).split()[0]


def served_words(options: argparse.Namespace) -> list[str]:
    """Return the options that make a drafter's server load what this process loads."""
    words = ["--backend", options.backend]
    for name in ("device", "dtype", "target", "drafter", "drafter_context"):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", str(value)] if value else []
    return words


def serves_lookup(options: argparse.Namespace) -> bool:
    """Return whether a server with these options, or started with `served_words` of them, offers prompt lookup."""
    return (options.drafter or os.environ.get("KAKEYA_DRAFTER")) == NGRAM
