"""Build the pages of this repository as a site, without the network, into build/site.

MkDocs builds a copy of the Markdown files in its strict mode: a link to no page or to no heading fails. A link to a
file that is no page takes the file along; one to a folder becomes text. `python -m tests.site`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from tests.drift import ROOT

SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
CONFIG = f"""
site_name: Kakeya
docs_dir: {SOURCE}
site_dir: {SITE}
strict: true
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.sections, navigation.top, search.highlight]
plugins: [search]
markdown_extensions: [admonition, attr_list, tables, toc, pymdownx.highlight, pymdownx.superfences]
validation:
  nav: {{omitted_files: ignore}}
  links: {{not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}}
"""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z]+:|#")


class _Loads(HTMLParser):
    """What a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        place = given.get("src") if tag in {"script", "img", "iframe"} else given.get("href") if tag == "link" else None
        if place and given.get("rel") not in {"canonical", "next", "prev"}:
            self.addresses.append(place)


def copy_pages(root: Path = ROOT, to: Path = SOURCE) -> list[Path]:
    """Copy every page, and what pages link to; return the pages."""
    shutil.rmtree(to, ignore_errors=True)
    pages = [root / name for name in PAGES] + sorted((root / "docs").rglob("*.md"))
    for page in pages:
        target = to / page.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text("utf-8")
        target.write_text(_LINK.sub(lambda match, page=page: _link(match, page, root, to), text), encoding="utf-8")
    return pages


def _link(match: re.Match[str], page: Path, root: Path, to: Path) -> str:
    text, address = match.groups()
    if _ELSEWHERE.match(address):
        return match.group()
    file = Path(os.path.normpath(page.parent / address.partition("#")[0]))
    if file.is_dir():
        return text
    if file.suffix != ".md" and file.is_file():
        target = to / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return match.group()


def from_the_network(site: Path = SITE) -> list[str]:
    """Return what pages would load from elsewhere, as page: address."""
    remote = []
    for page in sorted(site.rglob("*.html")):
        parser = _Loads()
        parser.feed(page.read_text("utf-8"))
        remote += [
            f"{page.relative_to(site)}: {place}" for place in parser.addresses if re.match(r"(https?:)?//", place)
        ]
    return remote


def main() -> int:
    pages = copy_pages()
    config = SOURCE.parent / "mkdocs.yml"
    config.write_text(CONFIG, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(config)], check=False)
    if done.returncode:
        return done.returncode
    loads = from_the_network()
    for line in loads:
        print(f"error: loaded from the network: {line}", file=sys.stderr)
    print(f"{SITE.relative_to(ROOT)}: {len(pages)} pages, every link leads somewhere")
    return 1 if loads else 0


if __name__ == "__main__":
    sys.exit(main())
