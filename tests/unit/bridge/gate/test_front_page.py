"""What the front page shows of runs is what the gate here says of committed ones, and no more than may be said."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bridge.gate.registry import rules
from tests.generated import front_page
from tests.generated.front_page import DEMO, LINE_MOST_CHARS, PICTURED, SHOWN, THEMES, first_run, picture, quotable

README = (front_page.ROOT / "README.md").read_text("utf-8")
CODE = re.compile(r"\((G\d-[A-Z]+)\)")


def test_the_front_page_shows_the_committed_first_run_with_the_gates_words() -> None:
    lines = list(first_run())
    assert [line.split()[0] for line in lines] == list(SHOWN)
    assert DEMO.search(README) is not None
    assert "```\n" + "\n".join(lines) + "\n```" in README
    assert max(map(len, lines)) <= LINE_MOST_CHARS


def test_the_first_run_is_said_to_be_no_claim_by_checks_that_there_are() -> None:
    (answer,) = [line for line in first_run() if line.startswith("quote")]
    assert "not yet, because " in answer
    assert set(CODE.findall(README)) <= set(rules())
    assert CODE.findall(answer) == ["G5-DESIGN"]


@pytest.mark.parametrize("theme", THEMES)
def test_the_picture_is_of_a_claim_that_may_be_quoted_and_has_its_words(theme: str) -> None:
    standing = quotable()
    claim = standing.primary
    drawn = ET.fromstring(picture(standing, THEMES[theme]))
    words = " ".join("".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text"))
    assert claim is not None
    assert claim.wording in words
    assert "signed by embedded" in words
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == len(claim.sittings) >= 6
    assert f'="docs/pictures/standing-claim-{theme}.svg"' in README


def test_sittings_that_may_not_be_quoted_are_not_drawn(tmp_path: Path) -> None:
    for path in sorted(PICTURED.iterdir())[1:]:
        (tmp_path / path.name).symlink_to(path)
    with pytest.raises(ValueError, match=r"may not be quoted here: .* of the 10 sittings that the first request fixed"):
        quotable(tmp_path)


def test_the_front_page_is_short() -> None:
    assert [line for line in README.splitlines() if len(line) > 120] == []
    assert len(README.split()) <= 800
