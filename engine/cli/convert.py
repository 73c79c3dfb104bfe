"""``kakeya-engine convert``: a DFlash drafter in the file format of another engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.checkpoint import resolve_model
from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.conversion.drafter_file import read_drafter
from engine.conversion.gguf_file import ARCHITECTURE, STORED, TYPES, write_gguf
from engine.conversion.mlx_folder import write_mlx
from engine.drafters.affine import BITS, GROUPS
from engine.errors import UsageError
from engine.options import from_here

GROUP_SIZE = 64
OF_FORMAT = {"gguf": ("type", "arch"), "mlx": ("bits", "group_size")}
"""What is chosen of each format."""


def parser() -> argparse.ArgumentParser:
    """Return the command line of this verb."""
    built = VerbParser(prog="kakeya-engine convert", description=__doc__)
    built.add_argument("format", choices=("gguf", "mlx"), help="gguf: one file; mlx: a folder of quantised weights")
    built.add_argument("drafter", help="folder or name of a DFlash drafter")
    built.add_argument("out", type=Path, help="file or folder to write; none may be there")
    built.add_argument("--type", choices=TYPES, help=f"gguf: type of the matrices (default: {STORED}, bit for bit)")
    built.add_argument("--arch", help=f"gguf: architecture readers look for (default: {ARCHITECTURE})")
    built.add_argument("--bits", type=int, choices=BITS, help=f"mlx: of a code (default: {BITS[0]})")
    built.add_argument(
        "--group-size", type=int, choices=GROUPS, help=f"mlx: values that share a scale (default: {GROUP_SIZE})"
    )
    return built


def main(argv: list[str]) -> int:
    """Convert; exit 0 when the file or folder was written."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    for written, names in OF_FORMAT.items():
        for name in names:
            if written != options.format and getattr(options, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is a choice for {written}, and {options.format} is written; leave it out")
    drafter = read_drafter(resolve_model(str(from_here(options.drafter))))
    if options.format == "gguf":
        architecture = ARCHITECTURE if options.arch is None else options.arch
        undivided = write_gguf(drafter, options.out, options.type or STORED, architecture)
    else:
        undivided = write_mlx(drafter, options.out, options.bits or BITS[0], options.group_size or GROUP_SIZE)
    print(f"{options.out}: {len(drafter.tensors)} tensors of {drafter.folder.name}")
    if undivided:
        print(f"stored as they were, because their rows do not divide: {', '.join(undivided)}")
    return 0
