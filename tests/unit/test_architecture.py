"""Architecture, glossary, decisions and how-tos name code that exists: each `path.py:name` is looked up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.definitions import defines

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PLACE = re.compile(r"`((?:bridge|engine|tests|benchmarks)/[\w/]+\.py):([A-Za-z_][\w.]*)`")
PAGES = [
    DOCS / "architecture.md",
    DOCS / "glossary.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((DOCS / "adr").glob("*.md")),
    *sorted((DOCS / "guides").glob("add-*.md")),
]
FILE = re.compile(r"`((?:bridge|engine|tests|benchmarks|runner-setup)/[\w./-]*[\w/])`")
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_place_a_page_names_is_there(page: Path) -> None:
    gone = [
        line for line in page.read_text("utf-8").splitlines() for place in PLACE.findall(line) if not defines(*place)
    ]
    assert gone == [], f"{page.name}: nothing of this name is there any more:\n" + "\n".join(gone)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_folder_a_page_names_is_there(page: Path) -> None:
    assert [path for path in FILE.findall(page.read_text("utf-8")) if not (ROOT / path).exists()] == []


def test_the_table_of_questions_has_one_place_a_row() -> None:
    table = (DOCS / "architecture.md").read_text("utf-8").partition("| question | place |")[2]
    rows = ROW.findall(table)
    assert len(rows) > 30
    assert [question for question, place in rows if not PLACE.fullmatch(place)] == []
    assert len({question for question, _ in rows}) == len(rows)


def test_every_term_of_the_glossary_is_explained_once_in_one_line() -> None:
    rows = [
        line.split(" | ") for line in (DOCS / "glossary.md").read_text("utf-8").splitlines() if line.startswith("| **")
    ]
    terms = [row[0] for row in rows]
    assert len(rows) > 40
    assert sorted(set(terms)) == sorted(terms)
    assert [row[0] for row in rows if len(row) != 3 or not row[1].strip()] == []


def test_a_place_that_moved_is_found() -> None:
    assert defines("bridge/request/parse.py", "parse")
    assert not defines("bridge/request/parse.py", "parsed")
    assert not defines("bridge/request/parser.py", "parse")
    assert defines("bridge/errors.py", "KakeyaError.message")
    assert not defines("bridge/errors.py", "KakeyaError.messages")
