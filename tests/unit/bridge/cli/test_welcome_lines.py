"""A line that somebody sent: one name and one ed25519 key, or one line that says what is expected."""

from __future__ import annotations

import pytest

from bridge.cli.host.people import FORM, parse_line
from bridge.errors import UsageError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHv6Jx0nMYq0Xk0mM8yWm5n1X0T9lQ0m3bq8mJk1c2d3"


def test_a_name_and_a_key_are_taken_quoted_or_not():
    assert parse_line([f"ada@example.org {KEY}"]) == parse_line(["ada@example.org", *KEY.split()])
    assert parse_line([f"ada {KEY}"]) == ("ada", KEY)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ada@example.org", "expected one name and one key"),
        ("{key}", "expected one name and one key"),
        ("ada@example.org {key} {key}", "the line holds 2 keys"),
        ("ada@example.org,bob {key}", "is no name of one person"),
        ("*@example.org {key}", "is no name of one person"),
        ("unsigned {key}", "is no name of one person"),
        ('ada namespaces="git" {key}', "expected one name and one key"),
        ("ada\n{key}", r"the line holds '\\n'; expected one line without breaks"),
        ("ada\u00a0{key}", r"the line holds '\\xa0'; expected one line without breaks and marks"),
        ("{key}\u200b", r"the line holds '\\u200b'"),
        ("\u201cada {key}\u201d", "without quotes around the line"),
        ("'ada@example.org {key}'", "without quotes around the line"),
        ("<mailto:ada@example.org> {key}", "is no name of one person"),
        ("> ada {key}", "expected one name and one key, three words"),
        ("{key} ada", "expected one name and one key, three words"),
        ("ada {key}=20", "cut off, or changed on its way"),
        ("ada ssh-rsa AAAAB3NzaC1yc2E", "the key is of type ssh-rsa"),
        ("ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA", "is no ed25519 key"),
        ("ada ssh-ed25519 none!", "is no ed25519 key"),
    ],
)
def test_a_line_that_is_none_is_one_line_with_what_is_expected(line, words):
    with pytest.raises(UsageError, match=words) as raised:
        parse_line([line.format(key=KEY)])
    assert raised.value.remedy == FORM
