"""What a command answers, and the one place that prints it: lines for people, one document for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.cli.screen.output import DATA_LABEL_CHARS, Output
from bridge.errors import KakeyaError

if TYPE_CHECKING:
    from bridge.client.document.parts import BusPart, QuotaPart
    from bridge.client.run.run import Run
    from bridge.client.run.status import RunStatus


@dataclass(frozen=True)
class Row:
    """A labelled line of data, its text `width` characters in."""

    label: str
    text: str
    width: int = DATA_LABEL_CHARS


@dataclass(frozen=True)
class Fitted:
    """A line of data that the screen may break; what follows stands `indent` characters in."""

    text: str
    indent: int


@dataclass(frozen=True)
class Talk:
    """A labelled line beside the data, on stderr, also where a program asked."""

    label: str
    text: str


Line = str | Row | Fitted | Talk


@dataclass(frozen=True)
class Answer:
    """What a command has to say.

    Attributes:
        data: what stands below ``data`` in the document.
        lines: for people, in their order; a text is a line as it is.
        exit_code: of the command.
        reason: the document's word for how it ended.
        message: the document's sentence about that, None where nothing is wrong.
        following: commands that make sense now, for the document.
        bus: gives the bus that answered; called for a document only.
        quotas: gives what may still be asked of it; called for a document only.
        document: gives the whole document of a command of this name, where it is not made of the rest.
        after: takes the document once everything is printed.
    """

    data: Any = None
    lines: Iterable[Line] = ()
    exit_code: int = 0
    reason: str = "ok"
    message: str | None = None
    following: list[list[str]] = field(default_factory=list)
    bus: Callable[[], BusPart] | None = None
    quotas: Callable[[], list[QuotaPart]] | None = None
    document: Callable[[str], Mapping[str, Any]] | None = None
    after: Callable[[Mapping[str, Any]], None] | None = None


def about_run(
    run: Run, status: RunStatus, lines: Iterable[Line] = (), *, exit_code: int | None = 0, **changed: object
) -> Answer:
    """Return the answer of a command about one run.

    Args:
        run: the run.
        status: of the run.
        lines: for people.
        exit_code: of the command; None for the run's own.
        changed: parts of the document that are not those of the run.
    """

    def document(command: str) -> Mapping[str, Any]:
        from bridge.client.run.present import document as of_run

        try:
            return {**of_run(run, status, command, exit_code=exit_code), **changed}
        except KakeyaError as error:
            error.run_id = run.id
            raise

    return Answer(lines=lines, exit_code=status.exit_code if exit_code is None else exit_code, document=document)


def print_answer(
    output: Output, command: str, answer: Answer, document_of: Callable[[str, Answer], Any] | None = None
) -> int:
    """Print an answer and return the exit code; the models of the document are loaded for a program only."""
    print_lines(output, answer.lines)
    if output.json or answer.after is not None:
        document = (document_of or envelope_of)(command, answer)
        if document is not None:
            output.document(document)
        if answer.after is not None:
            answer.after(document)
    return answer.exit_code


@contextmanager
def also_with_error(output: Output, lines: Iterable[Line]) -> Iterator[None]:
    """Print lines before an error that ends the command: whose result it is about is true all the same."""
    try:
        yield
    except KakeyaError:
        print_lines(output, lines)
        raise


def print_lines(output: Output, lines: Iterable[Line]) -> None:
    """Print lines as their kinds say."""
    for line in lines:
        match line:
            case Row(label, text, width):
                output.row(label, text, width)
            case Fitted(text, indent):
                for part in output.fitted(text, indent):
                    output.data(part)
            case Talk(label, text):
                output.say(label, text)
            case _:
                output.data(line)


def envelope_of(command: str, answer: Answer) -> Mapping[str, Any]:
    """Return the document of an answer."""
    if answer.document is not None:
        return answer.document(command)
    from bridge.client.document.envelope import of_data

    return of_data(
        command, answer.data, exit_code=answer.exit_code, reason=answer.reason, message=answer.message,
        bus=None if answer.bus is None else answer.bus(), next_argv=answer.following,
        quotas=None if answer.quotas is None else answer.quotas(),
    )  # fmt: skip
