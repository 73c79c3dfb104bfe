"""The shape of a program and of a command: texts, arguments, the place of its handler. Data only, nothing imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

Kind = Literal["value", "flag", "repeat", "optional", "many"]
Completion = Literal["none", "preset", "run", "path", "shell", "rule", "ref", "command"]


@dataclass(frozen=True)
class Argument:
    """One argument.

    Attributes:
        names: one bare word for a positional, else option names.
        kind: ``value`` takes one, ``flag`` none, ``repeat`` one each time, ``optional``/``many`` are positionals.
        number: whether the value is a count, or a duration whose bare numbers are seconds or days.
        complete: what a shell should offer.
        dest: the attribute that declares it.
    """

    names: tuple[str, ...]
    help: str
    kind: Kind = "value"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    number: Literal["", "seconds", "days", "int"] = ""
    default: str | float | int | None = None
    complete: Completion = "none"
    dest: str = ""

    @property
    def positional(self) -> bool:
        """Whether it is given by place."""
        return not self.names[0].startswith("-")

    @property
    def word(self) -> str:
        """What stands for its value."""
        return self.metavar or self.dest.upper()

    def usage(self) -> str:
        """Return it as it stands in a usage line."""
        word = self.word
        if self.choices and self.metavar is None:
            word = "|".join(self.choices)
        match self.kind:
            case "flag":
                return f"[{self.names[0]}]"
            case "repeat":
                return f"[{self.names[0]} {word} …]"
            case "optional":
                return f"[{word}]"
            case "many" if self.positional:
                return f"[{word} …]"
            case "many":
                return f"[{self.names[-1]} {word} …]"
            case _:
                return word if self.positional else f"[{self.names[-1]} {word}]"


def word(text: str, **facts: Any) -> Any:
    """Declare what is given by its place, as a typed attribute of `Options`."""
    return Argument((), text, **facts)


def flag(text: str, **facts: Any) -> Any:
    """Declare an option that takes no value."""
    return option(text, kind="flag", **facts)


def option(text: str, short: str = "", **facts: Any) -> Any:
    """Declare an option with a value; its long name is that of the attribute, `short` the other one."""
    return Argument((short, "--"), text, **facts)


class Options:
    """What a command line gave; a subclass declares each option once, as a typed attribute.

    Args:
        values: by attribute, in the place of what declares it.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        vars(self).update(values)

    @classmethod
    def declared(cls) -> tuple[Argument, ...]:
        """Return what is declared, a class's own before that of the classes it builds on."""
        members = (
            (name, value) for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, Argument)
        )
        return tuple(_named(name, value) for name, value in members)


def _named(name: str, value: Argument) -> Argument:
    """Return an argument with the names that its attribute gives it."""
    if not value.names:
        return replace(value, names=(name,), dest=name)
    long = f"--{name.rstrip('_').replace('_', '-')}"  # as in `for_`, where Python has the word itself
    return replace(value, names=tuple(filter(None, (value.names[0], long))), dest=name)


@dataclass(frozen=True)
class Tool:
    """What agents see of a command, whose words and options are those of the command itself.

    Attributes:
        takes: the arguments that a call may give, by name.
        name: of the tool, where that is not the command's.
        says: what an agent is told beyond the command's summary.
        limits: least, most and default of a count, where a protocol's clients have narrower ones than people.
        always: words of every call.
        detail: the command that is called in its place by a call that gives what that one needs.
        changes: nothing, something that is added, or something that is ended.
        waits: whether a call may take as long as its time-out.
    """

    takes: tuple[str, ...] = ()
    name: str | None = None
    says: str = ""
    limits: Mapping[str, tuple[int, int, int | None]] = field(default_factory=dict)
    always: tuple[str, ...] = ()
    detail: str | None = None
    changes: Literal["nothing", "adds", "ends"] = "nothing"
    waits: bool = False


@dataclass(frozen=True)
class Verb:
    """One command of a program.

    Attributes:
        name: one or two words.
        group: the heading under which the help lists it.
        handler: ``module:function``, imported when the command is called; gets the program's call, with its options,
            and returns a `bridge.cli.screen.answer.Answer`.
        options: what it takes.
        summary: one line, lower case, no full stop.
        details: a paragraph or None.
        examples: command lines as typed.
        exit_codes: the codes it can end in, beyond 2, 3 and 70.
        tool: what agents see of it, None where they do not.
    """

    name: str
    group: str
    handler: str
    options: type[Options]
    summary: str
    details: str | None = None
    examples: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = (0,)
    program: str = "kakeya-mac"
    tool: Tool | None = None

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What its command line takes."""
        return self.options.declared()

    def usage(self) -> str:
        """Return the usage line: positionals first, then options."""
        ordered = sorted(self.arguments, key=lambda argument: not argument.positional)
        return " ".join([self.program, self.name, *(argument.usage() for argument in ordered)])


@dataclass(frozen=True)
class Program:
    """A program, as its help shows it.

    Attributes:
        front: what the first page of the help shows; `help all` shows the rest.
        notes: what stands below either page, a line each.
        elsewhere: what other programs call a command.
    """

    name: str
    tagline: str
    verbs: tuple[Verb, ...]
    front: tuple[str, ...]
    notes: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, Verb]:
        """Its commands by their name."""
        return {verb.name: verb for verb in self.verbs}

    def find(self, words: list[str]) -> tuple[Verb | None, list[str]]:
        """Return the command of a command line and the words that follow it; two-word names win."""
        for length in (2, 1):
            name = " ".join(words[:length])
            if len(words) >= length and name in self.by_name:
                return self.by_name[name], words[length:]
        return None, words
