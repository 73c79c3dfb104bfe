"""Say whether the commit may be released; where no release tag points at it, there is nothing to say.

A tag v1.2.3 needs that version in pyproject.toml, a heading of it in CHANGELOG.md, and an address at which weaknesses
are reported in `[tool.kakeya] disclosure`. `python -m tests.release_ready` exits 1 with what is missing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.drift import ROOT

_TAG = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+.*")
_ADDRESS = re.compile(r"https://\S+|mailto:[^\s@]+@[^\s@]+\.[^\s@]+")


def tags(root: Path = ROOT) -> list[str]:
    """Return the release tags of the commit that is checked out."""
    found = subprocess.run(["git", "tag", "--points-at", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    return [tag for tag in found.stdout.split() if _TAG.fullmatch(tag)]


def missing(tag: str, project: dict[str, Any], changes: str) -> list[str]:
    """Return what a release of this name still needs, a line each."""
    version, address = project["project"]["version"], project["tool"]["kakeya"]["disclosure"]
    found = []
    if tag != f"v{version}":
        found.append(f"pyproject.toml has version {version}, the tag is {tag}: change one of them")
    if re.search(rf"^## \[?{re.escape(tag[1:])}\b", changes, re.MULTILINE) is None:
        found.append(f"CHANGELOG.md has no heading '## {tag[1:]}': say there what users get")
    if _ADDRESS.fullmatch(address) is None:
        found.append(
            f"[tool.kakeya] disclosure in pyproject.toml is '{address}', not https://… or mailto:…: "
            "name where weaknesses are reported"
        )
    return found


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found = [line for tag in tags() for line in missing(tag, project, (ROOT / "CHANGELOG.md").read_text("utf-8"))]
    for line in found:
        print(f"error: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
