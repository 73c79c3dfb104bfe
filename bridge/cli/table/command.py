"""The shape of a command: name, texts, arguments, and the place of its handler. Data only, nothing imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True)
class Verb:
    """One command of `kakeya-mac`.

    Attributes:
        name: one or two words.
        handler: ``module:function``, imported when the command is called; gets a `bridge.cli.mac.context.Invocation`
            and returns a `bridge.cli.screen.answer.Answer`.
        summary: one line, lower case, no full stop.
        details: a paragraph or None.
        examples: command lines as typed.
        exit_codes: the codes it can end in, beyond 2, 3 and 70.
    """

    name: str
    group: Group
    handler: str
    summary: str
    arguments: tuple[Argument, ...] = ()
    details: str | None = None
    examples: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = (0,)

    def usage(self, program: str = "kakeya-mac") -> str:
        """Return the usage line: positionals first, then options."""
        ordered = sorted(self.arguments, key=lambda argument: not argument.positional)
        return " ".join([program, self.name, *(argument.usage() for argument in ordered)])
