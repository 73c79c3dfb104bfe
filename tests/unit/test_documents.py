"""Documents name things that exist: every test that SECURITY.md promises, every file a page links to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROMISED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


def test_every_test_that_security_promises_exists() -> None:
    promised = PROMISED.findall((ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(promised) > 20
    absent = [
        f"{path}::{name}"
        for path, name in promised
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert absent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(/work/|/root/|/home/[a-z])", text)
