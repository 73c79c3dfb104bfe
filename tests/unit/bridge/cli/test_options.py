"""What a command takes is declared once: its type says what its kind and its numbers give."""

from __future__ import annotations

import pytest

from bridge.cli.table.command import Argument, Options, Verb
from bridge.cli.table.commands import MAC
from bridge.cli.table.parser import parse
from bridge.cli.table.runner_commands import RUNNER

WORDS = {"profile": "Profile", "wake": "Wake", "load": "DrawnLoad", "fail_if": "EffectWord"}
SCALARS = {"": "str", "seconds": "float", "days": "float", "int": "int"}


def annotation(options: type[Options], name: str) -> str:
    return next(str(vars(base)["__annotations__"][name]) for base in options.__mro__ if name in vars(base))


def expected(argument: Argument) -> str:
    scalar = WORDS.get(argument.dest, SCALARS[argument.number])
    if argument.kind in {"value", "optional"}:
        certain = argument.default is not None or (argument.positional and argument.kind == "value")
        return scalar if certain else f"{scalar} | None"
    every = "list[str]" if argument.positional else "list[str] | None"
    return {"flag": "bool", "many": every, "repeat": every}[argument.kind]


@pytest.mark.parametrize("verb", [*MAC.verbs, *RUNNER.verbs], ids=lambda verb: f"{verb.program} {verb.name}")
def test_the_type_of_an_option_is_what_its_command_line_gives(verb: Verb) -> None:
    declared = {argument.dest: annotation(verb.options, argument.dest) for argument in verb.arguments}
    assert declared == {argument.dest: expected(argument) for argument in verb.arguments}
    words = [argument.choices[0] if argument.choices else "x" for argument in verb.arguments if argument.positional]
    assert set(vars(parse(verb, words))) == set(declared)
