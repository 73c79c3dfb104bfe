"""What a check found is shown the same way everywhere."""

from __future__ import annotations

from bridge.diagnostics import Check, has_failed, lines

FINE = Check("python", "ok", "3.11.7", "never shown")
LOOK = Check("disk", "warn", "2 GB free", "make room")
BAD = Check("sandbox", "fail", "no bwrap", "install the package bubblewrap")


def test_a_remedy_follows_what_is_not_in_order() -> None:
    assert list(lines(FINE)) == ["ok    python    3.11.7"]
    assert list(lines(LOOK)) == ["warn  disk      2 GB free", "                next: make room"]
    assert list(lines(BAD))[1].strip() == "next: install the package bubblewrap"


def test_only_a_failure_stands_in_the_way() -> None:
    assert not has_failed([FINE, LOOK])
    assert has_failed([FINE, LOOK, BAD])
