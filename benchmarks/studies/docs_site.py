"""The docs site: `make site` without a network, and then every link of what was built, followed by another reader.

What builds it is installed first, for which there has to be a network. Counts, not seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study
from tests.site import SITE

CASE = "make site"
ALONE = ("unshare", "--user", "--map-root-user", "--net")
_ELSEWHERE = re.compile(r"[a-z]+:|//")


class _Page(HTMLParser):
    """The names that a page gives to its places, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names |= {name for name in (given.get("id"), given.get("name")) if name}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")


def followed(site: Path) -> Row:
    """Follow every link of every page; return how many there are and which lead nowhere."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    inside = elsewhere = 0
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if _ELSEWHERE.match(link):
                elsewhere += 1
                continue
            inside += 1
            if not _leads_somewhere(link, path, site, pages):
                broken.append(f"{path.relative_to(site)}: {link}")
    return {"pages": len(pages), "links inside": inside, "links elsewhere": elsewhere, "broken": broken}


def _leads_somewhere(link: str, of: Path, site: Path, pages: dict[Path, _Page]) -> bool:
    place, _, name = unquote(link).partition("#")
    place = place.partition("?")[0]
    target = of if not place else site / place.lstrip("/") if place.startswith("/") else of.parent / place
    target = Path(os.path.normpath(target))
    target = target / "index.html" if target.is_dir() else target
    if target in pages:
        return not name or name in pages[target].names
    return target.is_file()


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page


def run(_case: str) -> list[Row]:
    """Build the site where there is no network, and follow its links.

    Raises:
        RuntimeError: it cannot be built, or this machine gives a process no network of its own.
    """
    _done(("make", ".venv/.release"))
    said = _done((*ALONE, "make", "site"))
    reached = _done((*ALONE, "cat", "/proc/net/dev"))
    interfaces = [line.partition(":")[0].strip() for line in reached.splitlines()[2:]]
    return [followed(SITE) | {"interfaces while it was built": interfaces, "said": said.splitlines()[-1]}]


def _done(words: Iterable[str]) -> str:
    done = subprocess.run([*words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


ABOUT = "Is the docs site built without a network, and does every link lead somewhere?"
STUDY = Study("site", ABOUT, lambda: [CASE], run)
