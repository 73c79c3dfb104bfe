"""The site of the pages has the result pages and pictures in it, and an address that leads nowhere is named."""

from __future__ import annotations

from pathlib import Path

from tests.drift import ROOT
from tests.site import broken, built, copy_pages, from_the_network

PAGE = '<h1 id="top">A</h1><a href="#top">up</a><a href="#gone">x</a><a href="b.html#part">b</a><a href="c.html">c</a>'


def test_addresses_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f'{PAGE}<picture><source srcset="dark.svg"><img src="light.svg"></picture>')
    (tmp_path / "b.html").write_text('<p id="part"><a href="/a.html#top">a</a><a href="https://example.org">e</a></p>')
    (tmp_path / "light.svg").write_text("<svg/>")
    count, nowhere = broken(built(tmp_path), tmp_path)
    assert count == 7
    assert nowhere == ["a.html: dark.svg", "a.html: #gone", "a.html: c.html"]


def test_what_would_be_loaded_from_elsewhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<img src="https://example.org/a.png"><a href="https://example.org">fine</a>')
    assert from_the_network(built(tmp_path), tmp_path) == ["a.html: https://example.org/a.png"]


def test_pages_take_their_pictures_along_and_results_become_pages(tmp_path: Path) -> None:
    root, to = tmp_path / "tree", tmp_path / "site"
    (root / "docs" / "evidence").mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        (root / name).write_text("")
    (root / "README.md").write_text('<source srcset="docs/dark.svg">\n\n[fit](docs/evidence/line-fit.tar.xz)\n')
    (root / "docs" / "dark.svg").write_text("<svg/>")
    packed = root / "docs" / "evidence" / "line-fit.tar.xz"
    packed.write_bytes((ROOT / "docs" / "evidence" / "line-fit.tar.xz").read_bytes())
    copy_pages(root, to)
    assert (to / "docs" / "dark.svg").is_file()
    assert "[fit](docs/evidence/line-fit.html)" in (to / "README.md").read_text()
    page = (to / "docs" / "evidence" / "line-fit.html").read_text()
    assert "May be quoted: final_loss" in page
    assert "signed by embedded" in page
