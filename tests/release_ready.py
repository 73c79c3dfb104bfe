"""Say whether the commit may be released; where no release tag points at it, there is nothing to say.

A tag v1.2.3 needs a commit of main, that version in pyproject.toml, a heading of it in CHANGELOG.md, and an address at
which weaknesses are reported in `[tool.kakeya] disclosure`. A tag v1.2 is none: whoever set it meant a release.
`python -m tests.release_ready` exits 1 with what is missing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.drift import ROOT

_MEANT = re.compile(r"v[0-9].*")
_TAG = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+.*")
_MAIN = ("refs/remotes/origin/main", "refs/heads/main")
_ADDRESS = re.compile(r"https://\S+|mailto:[^\s@]+@[^\s@]+\.[^\s@]+")


def tags(root: Path = ROOT) -> list[str]:
    """Return the tags of the commit that is checked out which are, or were meant to be, of a release."""
    process = subprocess.run(
        ["git", "tag", "--points-at", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    )
    return [tag for tag in process.stdout.split() if _MEANT.fullmatch(tag)]


def on_main(root: Path = ROOT) -> bool:
    """Return whether the commit that is checked out is one of main's."""
    return any(
        subprocess.run(
            ["git", "merge-base", "--is-ancestor", "HEAD", ref], cwd=root, capture_output=True, check=False
        ).returncode == 0
        for ref in _MAIN
    )  # fmt: skip


def missing(tag: str, project: dict[str, Any], changes: str) -> list[str]:
    """Return what a release of this name still needs, a line each."""
    version, address = project["project"]["version"], project["tool"]["kakeya"]["disclosure"]
    if _TAG.fullmatch(tag) is None:
        return [f"tag {tag} names no release, expected v1.2.3: delete it, or set v{version}"]
    problems = []
    if tag != f"v{version}":
        problems.append(f"pyproject.toml has version {version}, the tag is {tag}: change one of them")
    if re.search(rf"^## \[?{re.escape(tag[1:])}(?=[\]\s]|$)", changes, re.MULTILINE) is None:
        problems.append(f"CHANGELOG.md has no heading '## {tag[1:]}': say there what users get")
    if _ADDRESS.fullmatch(address) is None:
        problems.append(
            f"[tool.kakeya] disclosure in pyproject.toml is '{address}', not https://… or mailto:…: "
            "name where weaknesses are reported"
        )
    return problems


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named, changes = tags(), (ROOT / "CHANGELOG.md").read_text("utf-8")
    problems = [line for tag in named for line in missing(tag, project, changes)]
    if named and not on_main():
        problems.append(f"the commit of {', '.join(named)} is not on main: release what was merged")
    for line in problems:
        print(f"error: {line}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
