"""Dispatch ``kakeya-engine eval WHAT`` over the registry of studies."""

from __future__ import annotations

import sys

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.studies.registry import STUDIES, command


def usage() -> str:
    """Return the help text, one line a workload."""
    lines = [f"  {name:<17} {summary}" for name, (_, summary) in STUDIES.items()]
    return (
        "usage: kakeya-engine eval WHAT [options]\n\n"
        + "\n".join(lines)
        + "\n\n`kakeya-engine eval WHAT --help` says more."
    )


def main(argv: list[str]) -> int:
    """Run one workload and return its exit code, 2 for an unknown one."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(usage())
        return 0
    name, *rest = argv
    if name not in STUDIES:
        print(f"unknown workload {name!r}; known: {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    chosen = command(name)
    parser = VerbParser(prog=f"kakeya-engine eval {name}", description=chosen.description)
    chosen.options(parser)
    options = parser.parse_args(rest)
    return guarded(lambda: chosen.run(options))
