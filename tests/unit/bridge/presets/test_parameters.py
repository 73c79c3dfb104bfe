"""A value becomes exactly one argv token, or a refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ParameterError
from bridge.presets.parameters import (
    ChoiceParameter,
    FlagParameter,
    FloatParameter,
    IntParameter,
    PathParameter,
    TextParameter,
    bind,
    render,
)

INT = IntParameter(type="int", min=-3, max=9, help="h")
FLOAT = FloatParameter(type="float", min=0.0, max=1.0, help="h")
CHOICE = ChoiceParameter(type="choice", choices=("a", "b"), help="h")
PATH = PathParameter(type="path", root="workload", help="h")
TEXT = TextParameter(type="text", pattern="[a-z]+", help="h")
FLAG = FlagParameter(type="flag", token="--fast", help="h")
ALL = {"i": INT, "f": FLOAT, "c": CHOICE, "p": PATH, "t": TEXT, "b": FLAG}


@pytest.mark.parametrize(
    ("parameter", "value", "tokens"),
    [
        (INT, 4, ("4",)),
        (FLOAT, 0.5, ("0.5",)),
        (FLOAT, 1, ("1.0",)),
        (CHOICE, "a", ("a",)),
        (PATH, "tests/unit/test_x.py", ("tests/unit/test_x.py",)),
        (TEXT, "abc", ("abc",)),
        (FLAG, True, ("--fast",)),
        (FLAG, False, ()),
    ],
)
def test_a_value_within_its_bounds_becomes_its_token(parameter, value, tokens):
    assert render("x", parameter, value) == tokens


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (INT, True),
        (INT, "4"),
        (INT, 4.0),
        (INT, 10),
        (INT, -1),  # would read as an option
        (FLOAT, True),
        (FLOAT, float("nan")),
        (FLOAT, 1.5),
        (CHOICE, "c"),
        (CHOICE, True),
        (PATH, "../etc/passwd"),
        (PATH, "/etc/passwd"),
        (PATH, "a/../b"),
        (PATH, "a//b"),
        (PATH, ".git/config"),
        (PATH, "-rf"),
        (PATH, "a b"),
        (PATH, "a\n"),
        (PATH, ""),
        (TEXT, "abc\n"),
        (TEXT, "a" * 65),
        (TEXT, "ABC"),
        (FLAG, 1),
        (FLAG, "true"),
    ],
)
def test_any_other_value_is_refused(parameter, value):
    with pytest.raises(ParameterError, match="expected"):
        render("x", parameter, value)


def test_a_negative_number_needs_the_presets_word():
    free = IntParameter(type="int", min=-3, max=9, help="h", allow_dash=True)
    assert render("x", free, -1) == ("-1",)


def test_unknown_and_missing_parameters_are_refused():
    with pytest.raises(ParameterError, match="unknown parameter 'z'"):
        bind(ALL, {"z": 1})
    with pytest.raises(ParameterError, match="'i' is missing"):
        bind({"i": INT}, {})


@given(st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=40)), st.sampled_from(sorted(ALL)))
def test_whatever_is_sent_no_value_becomes_an_option_or_a_second_token(value, name):
    try:
        tokens = render(name, ALL[name], value)
    except ParameterError:
        return
    assert len(tokens) <= 1
    assert all(token == "--fast" or (token and not token.startswith("-")) for token in tokens)
    assert not any(char in token for token in tokens for char in "\0\n;|`$ ")
