"""Build the pages of this repository as a site, without the network, into build/site.

MkDocs builds a copy of the Markdown files in its strict mode: a link to no page or to no heading fails. A link to a
file that is no page takes the file along; one to a folder becomes text; one to a committed result becomes a link to its
page, as `kakeya-mac open --html` writes it. Then every address of a built page is looked up. `python -m tests.site`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bridge.client.clone.packed import SUFFIX
from bridge.client.evidence import verify as checking
from bridge.client.evidence.judged import JudgedResult
from bridge.client.page.result_page import page_of
from tests.drift import ROOT
from tests.generated.front_page import evidence_pins

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
_PICTURE = re.compile(r'(?:src|srcset)="([^"\s]+)"|!\[[^\]]*\]\(([^)\s]+)\)')
_ELSEWHERE = re.compile(r"[a-z]+:|#")


class _Addresses(HTMLParser):
    """What a page loads when it is opened, what it leads to, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and (address := given.get("href")):
            self.links.append(address)
        place = given.get("src") if tag in {"script", "img", "iframe"} else given.get("href") if tag == "link" else None
        place = given.get("srcset") if tag == "source" else place
        if place and given.get("rel") not in {"canonical", "next", "prev"}:
            self.loads.append(place)


def copy_pages(root: Path = ROOT, to: Path = SOURCE) -> list[Path]:
    """Copy every page, and what pages link to; return the pages."""
    shutil.rmtree(to, ignore_errors=True)
    pages = [root / name for name in PAGES] + sorted((root / "docs").rglob("*.md"))
    for page in pages:
        target = to / page.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text("utf-8")
        for picture in filter(None, (address for places in _PICTURE.findall(text) for address in places)):
            if not _ELSEWHERE.match(picture):
                _take_along(Path(os.path.normpath(page.parent / picture)), root, to)
        target.write_text(_LINK.sub(lambda match, page=page: _link(match, page, root, to), text), encoding="utf-8")
    return pages


def _take_along(file: Path, root: Path, to: Path) -> None:
    target = to / file.relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)


def result_page(packed: Path) -> str:
    """Return the page of a committed result, checked and judged with the keys that the evidence's page gives."""
    trusted = evidence_pins()
    return page_of(JudgedResult.of_folder(packed, trusted), checking.verify_folder(packed, trusted).checks, ())


def _link(match: re.Match[str], page: Path, root: Path, to: Path) -> str:
    text, address = match.groups()
    if _ELSEWHERE.match(address):
        return match.group()
    file = Path(os.path.normpath(page.parent / address.partition("#")[0]))
    if file.is_dir():
        return text
    if file.name.endswith(SUFFIX):
        written = to / file.relative_to(root).parent / f"{file.name.removesuffix(SUFFIX)}.html"
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(result_page(file), encoding="utf-8")
        return f"[{text}]({address.removesuffix(SUFFIX)}.html)"
    if file.suffix != ".md" and file.is_file():
        _take_along(file, root, to)
    return match.group()


def built(site: Path = SITE) -> dict[Path, _Addresses]:
    """Return what each built page loads, leads to and can be led to."""
    return {page: _Addresses(page.read_text("utf-8")) for page in sorted(site.rglob("*.html"))}


def from_the_network(pages: dict[Path, _Addresses], site: Path = SITE) -> list[str]:
    """Return what pages would load from elsewhere, as page: address."""
    return [
        f"{page.relative_to(site)}: {place}"
        for page, addresses in pages.items()
        for place in addresses.loads
        if re.match(r"(https?:)?//", place)
    ]


def broken(pages: dict[Path, _Addresses], site: Path = SITE) -> tuple[int, list[str]]:
    """Return how many addresses lead to the site itself, and those that lead nowhere, as page: address."""
    count, nowhere = 0, []
    for page, addresses in pages.items():
        for place in [*addresses.loads, *addresses.links]:
            parts = urlsplit(place)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            below = site if parts.path.startswith("/") else page.parent
            target = page if not parts.path else Path(os.path.normpath(below / unquote(parts.path).lstrip("/")))
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (parts.fragment and target in pages and unquote(parts.fragment) not in anchors):
                nowhere.append(f"{page.relative_to(site)}: {place}")
    return count, nowhere


def main() -> int:
    pages = copy_pages()
    config = SOURCE.parent / "mkdocs.yml"
    config.write_text(CONFIG, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(config)], check=False)
    if done.returncode:
        return done.returncode
    site_pages = built()
    loads, (count, nowhere) = from_the_network(site_pages), broken(site_pages)
    for line in loads:
        print(f"error: loaded from the network: {line}", file=sys.stderr)
    for line in nowhere:
        print(f"error: leads nowhere: {line}", file=sys.stderr)
    print(
        f"{SITE.relative_to(ROOT)}: {len(pages)} pages and {len(site_pages) - len(pages)} others, "
        f"{count} links and pictures, {len(nowhere)} broken"
    )
    return 1 if loads or nowhere else 0


if __name__ == "__main__":
    sys.exit(main())
