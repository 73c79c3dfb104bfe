"""Say whether the commit may be released; where no release tag points at it, there is nothing to say.

A tag v1.2.3 needs a commit of main, that version in pyproject.toml and CITATION.cff, a heading of it in CHANGELOG.md
and docs/release-notes.md, an address at which weaknesses are reported in `[tool.kakeya] disclosure`, and a licence in
the card of every model whose weights are shipped. A tag v1.2 is none: whoever set it meant a release.
`python -m tests.release_ready` exits 1 with what is missing.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint import ASSETS
from tests.drift import ROOT

_LICENCE = "Apache-2.0"
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


@dataclass(frozen=True)
class Pages:
    """The texts that name a version.

    Attributes:
        changes: of CHANGELOG.md.
        notes: of docs/release-notes.md.
        citation: of CITATION.cff.
    """

    changes: str
    notes: str
    citation: str


def missing(tag: str, project: dict[str, Any], pages: Pages) -> list[str]:
    """Return what a release of this name still needs, a line each."""
    version, address = project["project"]["version"], project["tool"]["kakeya"]["disclosure"]
    if _TAG.fullmatch(tag) is None:
        return [f"tag {tag} names no release, expected v1.2.3: delete it, or set v{version}"]
    problems = []
    if tag != f"v{version}":
        problems.append(f"pyproject.toml has version {version}, the tag is {tag}: change one of them")
    for page, text in (("CHANGELOG.md", pages.changes), ("docs/release-notes.md", pages.notes)):
        if re.search(rf"^## \[?{re.escape(tag[1:])}(?=[\]\s]|$)", text, re.MULTILINE) is None:
            problems.append(f"{page} has no heading '## {tag[1:]}': say there what users get")
    cited = re.search(r'^version: "?([^"\s]+)"?$', pages.citation, re.MULTILINE)
    if cited is None or cited[1] != tag[1:]:
        problems.append(f"CITATION.cff has version {cited[1] if cited else 'none'}, expected {tag[1:]}: write it there")
    if _ADDRESS.fullmatch(address) is None:
        problems.append(
            f"[tool.kakeya] disclosure in pyproject.toml is '{address}', not https://… or mailto:…: "
            "name where weaknesses are reported"
        )
    return problems


def unlicensed(assets: Path = ASSETS) -> list[str]:
    """Return the models that ship with weights and whose card names no licence."""
    cards = {file.parent.name: file.parent / "MODEL_CARD.md" for file in sorted(assets.glob("*/*.safetensors"))}
    return [name for name, card in cards.items() if not card.is_file() or _LICENCE not in card.read_text("utf-8")]


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named = tags()
    texts = [(ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "docs/release-notes.md", "CITATION.cff")]
    problems = [line for tag in named for line in missing(tag, project, Pages(*texts))]
    if named:
        problems += [f"{name}/MODEL_CARD.md names no licence, expected {_LICENCE}" for name in unlicensed()]
    if named and not on_main():
        problems.append(f"the commit of {', '.join(named)} is not on main: release what was merged")
    for line in problems:
        print(f"error: {line}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
