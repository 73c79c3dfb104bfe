"""Text that strangers wrote: nothing in it moves a cursor, ends a fence, or becomes a command."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.client.document.untrusted import (
    LINE_MAX_CHARS,
    LineJoiner,
    clean_line,
    clean_lines,
    commands_terminals,
    fenced,
    markdown_text,
    new_fence,
    tail,
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("a\x1bPq#0;\x1b\\b", "ab"),
        ("\x9b2Ja", "a"),
        ("a\x1b]52;c;never ended", "a"),
        ("bell\x07back\x08", "bellback"),
        ("rtl\u202eevil\u2066x\u2069", "rtlevilx"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("tag\U000e0041", "tag"),
        ("##[command]x ##[error]y", "# #[command]x # #[error]y"),
        ("tab\tkept ünïcode 日本", "tab\tkept ünïcode 日本"),
        ("\u2028line\u2029", "line"),
    ],
)
def test_escapes_and_controls_go_and_text_stays(text, clean):
    assert clean_line(text) == clean


@pytest.mark.parametrize("begin", ["\x1b]52;c;", "\x1bP", "\x1bX", "\x1b^", "\x1b_"])
def test_a_string_that_nobody_ended_takes_no_more_than_its_line(begin):
    data = f"before\nodd{begin}payload\nTraceback\n".encode()
    assert list(clean_lines(data)) == ["before", "odd", "Traceback", ""]
    assert LineJoiner().feed(data) == ["before", "odd", "Traceback"]


@given(st.text(max_size=300))
def test_no_control_character_survives(text):
    assert all(char == "\t" or (ord(char) >= 32 and not 127 <= ord(char) < 160) for char in clean_line(text))


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_lines_do_not_depend_on_where_chunks_end(data, cuts):
    joiner = LineJoiner()
    pieces = [data[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=False)]
    if b"\x1b" in data or b"\x9b" in data:
        return  # an escape of a few bytes that ends with its line may take in the line's end; it never shows in either
    lines = [line for piece in pieces for line in joiner.feed(piece)]
    lines += joiner.finish()
    whole = list(clean_lines(data))
    assert lines == (whole[:-1] if data.endswith(b"\n") or not data else whole)


@pytest.mark.parametrize("data", [b"\x1b[31m", b"bell\x07", b"\xc2\x9b2J", b"back\x08", "\u202e".encode(), b"\x00"])
def test_what_commands_a_terminal_is_noticed(data):
    assert commands_terminals(b"a line\n" + data + b"\n")
    assert not commands_terminals(b"10%\r50%\rplain\ttext\r\n" + "ünïcode 日本\n".encode() + b"\xff\n")


def test_a_progress_bar_shows_its_last_state_and_a_long_line_is_cut():
    assert list(clean_lines(b"10%\r50%\r100%\nnext")) == ["100%", "next"]
    line = clean_line("x" * (LINE_MAX_CHARS + 10))
    assert line.endswith("… [10 more characters]")
    assert LineJoiner().feed(b"y" * 5 * LINE_MAX_CHARS)  # nobody may make us wait for a newline for ever


def test_a_tail_says_how_much_it_left_out():
    data = b"".join(f"{number}\n".encode() for number in range(10))
    assert tail(data, 3).lines == ("7", "8", "9")
    assert tail(data, 3).earlier_lines == 7
    assert tail(b"", 3).lines == ()
    assert tail(data, 0) == tail(data, 0)


def test_a_fence_cannot_be_guessed_and_every_line_is_prefixed():
    fence = new_fence()
    assert fence != new_fence()
    lines = list(fenced(["--- end of untrusted log 000000000000 ---", "::error::x"], "log", fence))
    assert lines[1:-1] == ["| --- end of untrusted log 000000000000 ---", "| ::error::x"]


@given(st.text(alphabet=string.punctuation + string.ascii_letters + " @\n", max_size=80))
def test_markdown_text_makes_no_mention_link_or_html(text):
    out = markdown_text(text)
    assert not re.search(r"@\w", out)
    assert not re.search(r"(?<!\\)[<>\[\]`*_|!#]", out)
    assert "://" not in out


@pytest.mark.parametrize("text", ["see www.example.org", "_WWW.example.org_", "(www.example.org)"])
def test_markdown_text_makes_no_link_of_a_host_s_name(text):
    assert "www." not in markdown_text(text).lower()


@pytest.mark.parametrize("text", ["&commat;octocat", "&#64;octocat", "https&colon;//example.org", "&lt;b&gt;"])
def test_markdown_text_shows_a_named_character_as_it_was_typed(text):
    """CommonMark reads `&commat;` as @, and a site makes a mention of what it reads."""
    assert re.search(r"(?<!\\)&", markdown_text(text)) is None
    assert markdown_text(text).replace("\\", "") == text
