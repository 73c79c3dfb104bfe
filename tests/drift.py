"""Compare every generated file with what its source generates now; `--write` brings them up to date.

`python -m tests.drift` exits 1 and names each file that differs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Each names a function () -> {path relative to the root: text}.
GENERATORS = (
    "tests.generated.client_documents:generate",
    "tests.generated.forgeries:generate",
    "tests.generated.front_page:generate",
    "tests.generated.gate_pages:generate",
    "tests.generated.protos:generate",
    "tests.generated.record_schemas:generate",
    "tests.generated.refusals:generate",
    "tests.generated.report_views:generate",
    "tests.generated.security_tests:generate",
    "tests.generated.status_page:generate",
    "tests.generated.study_pages:generate",
)


def generate(names: tuple[str, ...] = GENERATORS) -> dict[str, str]:
    """Return all generated files by path."""
    files: dict[str, str] = {}
    for name in names:
        module, function = name.split(":")
        produced: Mapping[str, str] = getattr(importlib.import_module(module), function)()
        twice = files.keys() & produced.keys()
        if twice:
            raise ValueError(f"{name} generates files that another generator owns: {sorted(twice)}")
        files.update(produced)
    return files


def differing(files: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """Return the paths whose content on disk is not the generated one."""
    return [path for path, text in sorted(files.items()) if not _same(root / path, text)]


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files that differ")
    options = parser.parse_args()
    files = generate()
    stale = differing(files)
    for path in stale:
        if options.write:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files[path], encoding="utf-8")
        print(f"{'wrote' if options.write else 'stale'} {path}")
    if stale and not options.write:
        print("these files are generated: python -m tests.drift --write", file=sys.stderr)
        return 1
    print(f"{len(files)} generated files, {len(stale)} {'written' if options.write else 'stale'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
