"""What git reports of a push, and the remote's words made fit for one line of ours."""

from __future__ import annotations

import pytest

from bridge.bus.store.answers import WORDS_MAX_CHARS, read_answers
from bridge.bus.store.interface import RefAnswer

REFUSED = "!\tx:refs/a/b\t[remote rejected] (hook declined)\n"


def why(stderr: str, porcelain: str = REFUSED) -> str:
    return read_answers(f"To elsewhere\n{porcelain}Done\n", stderr)["refs/a/b"].why


def test_each_ref_gets_its_answer_and_a_lost_report_is_none() -> None:
    porcelain = (
        "To elsewhere\n*\tx:refs/a/a\t[new reference]\n=\tx:refs/a/c\t[up to date]\n-\t:refs/a/d\t[deleted]\n"
        f"{REFUSED}!\tx:refs/a/e\t[remote failure] (remote failed to report status)\nDone\n"
    )
    taken = dict.fromkeys(("refs/a/a", "refs/a/c", "refs/a/d"), RefAnswer(taken=True))
    assert read_answers(porcelain, "") == {**taken, "refs/a/b": RefAnswer(taken=False, why="hook declined")}


def test_the_words_are_those_of_the_remote_about_this_ref() -> None:
    stderr = (
        "Writing objects: 100% (3/3), done.\nremote: Resolving deltas:   0% (0/1)\r"
        "remote: Resolving deltas: 100% (1/1)\n"
        "remote: too many branches        \nremote: error: cannot lock refs/a/c        \n"
        "error: failed to push some refs to 'https://agent:secret@host/x'\n"
    )
    two = f"{REFUSED}!\tx:refs/a/c\t[remote rejected] (failed to update ref)\n"
    assert why(stderr, two) == "hook declined; too many branches"


@pytest.mark.parametrize("end", ["\x1b[2J\x07", "\u202e", "\x85 \u2028", "\x0b"])
def test_nothing_that_moves_a_cursor_or_ends_a_line_comes_through(end: str) -> None:
    assert why(f"remote: no{end}no\n").isprintable()
    assert why("", f"!\tx:refs/a/b\t[remote rejected] (no{end}no\tno)\n").isprintable()


def test_no_secret_of_a_url_comes_through() -> None:
    message = why("remote: see https://agent:secret@host/x?token=hidden&a=b and http://host/y#hidden for more\n")
    assert message == "hook declined; see https://host/x and http://host/y for more"


def test_the_words_are_bounded() -> None:
    message = why("".join(f"remote: {'x' * 200}\n" for _ in range(9)))
    assert len(message) == WORDS_MAX_CHARS
    assert message.startswith("hook declined; x")
