"""The shape of a command: name, texts, arguments, and the place of its handler. Data only, nothing imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["value", "flag", "repeat", "optional", "many"]
Completion = Literal["none", "preset", "run", "path", "shell", "rule", "ref", "command"]
Group = Literal["Send", "Watch", "Judge", "Set up"]


@dataclass(frozen=True)
class Argument:
    """One argument.

    Attributes:
        names: one bare word for a positional, else option names.
        kind: ``value`` takes one, ``flag`` none, ``repeat`` one each time, ``optional``/``many`` are positionals.
        number: whether the value is a count, or a duration whose bare numbers are seconds or days.
        complete: what a shell should offer.
    """

    names: tuple[str, ...]
    help: str
    kind: Kind = "value"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    number: Literal["", "seconds", "days", "int"] = ""
    default: str | float | int | None = None
    complete: Completion = "none"

    @property
    def positional(self) -> bool:
        """Whether it is given by place."""
        return not self.names[0].startswith("-")

    @property
    def dest(self) -> str:
        """Name of the parsed value."""
        longest = max(self.names, key=len)
        return longest.lstrip("-").replace("-", "_")

    def usage(self) -> str:
        """Return it as it stands in a usage line."""
        word = self.metavar or self.dest.upper()
        if self.choices and self.metavar is None:
            word = "|".join(self.choices)
        match self.kind:
            case "flag":
                return f"[{self.names[0]}]"
            case "repeat":
                return f"[{self.names[0]} {word} …]"
            case "optional":
                return f"[{word}]"
            case "many":
                return f"[{word} …]"
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
    def arguments(cls) -> tuple[Argument, ...]:
        """Return what is declared, a class's own before that of the classes it builds on."""
        declared = (
            (name, value) for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, Argument)
        )
        return tuple(_named(name, value) for name, value in declared)


def _named(name: str, value: Argument) -> Argument:
    """Return an argument with the names that its attribute gives it."""
    if not value.names:
        return replace(value, names=(name,))
    return replace(value, names=tuple(filter(None, (value.names[0], f"--{name.replace('_', '-')}"))))


@dataclass(frozen=True)
class Verb:
    """One command of `kakeya-mac`.

    Attributes:
        name: one or two words.
        handler: ``module:function``, imported when the command is called; gets a `bridge.cli.mac.context.Invocation`
            and returns a `bridge.cli.screen.answer.Answer`.
        options: what it takes.
        summary: one line, lower case, no full stop.
        details: a paragraph or None.
        examples: command lines as typed.
        exit_codes: the codes it can end in, beyond 2, 3 and 70.
    """

    name: str
    group: Group
    handler: str
    options: type[Options]
    summary: str
    details: str | None = None
    examples: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = (0,)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What its command line takes."""
        return self.options.arguments()

    def usage(self, program: str = "kakeya-mac") -> str:
        """Return the usage line: positionals first, then options."""
        ordered = sorted(self.arguments, key=lambda argument: not argument.positional)
        return " ".join([program, self.name, *(argument.usage() for argument in ordered)])
