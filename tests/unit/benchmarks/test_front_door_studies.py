"""The studies of the front door that look at what was built: a link that leads nowhere is found."""

from __future__ import annotations

from pathlib import Path

from benchmarks.studies.docs_site import followed


def test_every_link_of_a_site_is_followed_to_a_page_a_place_on_it_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "guides").mkdir()
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "guides" / "index.html").write_text('<h1 id="top">Guides</h1><a href="../index.html#here">back</a>')
    (tmp_path / "index.html").write_text(
        '<p id="here"><a href="guides/">all</a> <a href="#here">up</a> <a href="data.json">data</a>'
        '<a href="https://example.org/x">away</a> <a href="guides/none.html">gone</a> <a href="guides/#none">lost</a>'
    )
    assert followed(tmp_path) == {
        "pages": 2,
        "links inside": 6,
        "links elsewhere": 1,
        "broken": ["index.html: guides/none.html", "index.html: guides/#none"],
    }
