"""What a check found is shown the same way everywhere."""

from __future__ import annotations

from bridge.diagnostics import Check, grouped, has_failed, lines, wrapped

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


def test_a_row_of_like_checks_is_one_and_others_stay_as_they_are():
    forged = [Check("forged", "warn", f"claim {number}", "look") for number in range(4)]
    checks = list(grouped([Check("bus", "ok", "there"), *forged, Check("state", "ok", "kept")]))
    assert [check.text for check in checks] == ["there", "claim 0 (and 3 more like it: --json)", "kept"]
    assert list(grouped([BAD, BAD])) == [BAD, BAD]


def test_findings_fit_a_hundred_characters_and_words_to_copy_stay_whole():
    key = "vm=" + "k" * 44
    check = Check("key", "warn", f"/home/somebody/{'a' * 40}/runner.key, pinned as {key}", f"chmod 600 {'b ' * 60}")
    printed = list(lines(check))
    assert max(map(len, printed)) <= 100
    assert printed[1] == f"{'':16}{key}"
    assert printed[2].startswith(f"{'':16}next: chmod 600 b")
    assert len(printed) == 4


def test_lines_fit_a_hundred_characters_and_words_stay_whole():
    lines = wrapped("word " * 60 + "kakeya-mac init --bus https://example.org/a-path-to-copy", 12)
    assert max(map(len, lines)) <= 88
    assert any("https://example.org/a-path-to-copy" in line for line in lines)
