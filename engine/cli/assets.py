"""``kakeya-engine assets``: the weights of the small trained models, which a wheel leaves out."""

from __future__ import annotations

import argparse
import importlib.metadata
from pathlib import Path

from engine.cards.archive import add, pack, shipped
from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded


def parser() -> argparse.ArgumentParser:
    """Return the command line of this verb."""
    built = VerbParser(prog="kakeya-engine assets", description=__doc__)
    verbs = built.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="say which models have their weights here")
    adding = verbs.add_parser("add", help="check the digests of a clone's or archive's weights and put them in place")
    adding.add_argument("source", type=Path, help="a clone of this version, or its kakeya-assets-VERSION.tar.gz")
    packing = verbs.add_parser("pack", help="write the archive, in a clone")
    packing.add_argument(
        "file", type=Path, nargs="?", default=Path(archive_name()), help="file to write (default: %(default)s)"
    )
    return built


def archive_name() -> str:
    """Return the file name of this version's archive."""
    return f"kakeya-assets-{importlib.metadata.version('kakeya')}.tar.gz"


def main(argv: list[str]) -> int:
    """List, add or pack; `list` exits 1 when weights are missing."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.verb == "pack":
        print(f"{options.file}: {pack(options.file)} bytes")
        return 0
    if options.verb == "add":
        for name in add(options.source):
            print(f"{name}: weights in place")
        return 0
    models = shipped()
    for model in models:
        print(f"{model.name}: {'weights in place' if model.present() else 'no weights'}")
    if all(model.present() for model in models):
        return 0
    print(f"add them: kakeya-engine assets add CLONE, the folder of a clone of this version, or its {archive_name()}")
    return 1
