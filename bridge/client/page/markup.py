"""HTML from texts: every text is cleaned and escaped here, so that nothing in a result becomes markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from bridge.client.document.untrusted import clean_line

if TYPE_CHECKING:
    from jinja2 import Environment

LISTED: Final = 400  # rows of a table that grows
PAGE_MAX_BYTES: Final = 1_000_000
_NOTICES_BYTES: Final = 20_000  # kept for what is said in the place of parts, and for the end


def text(value: object) -> Markup:
    """Return a value as escaped text of one line; what is markup already stays as it is."""
    return value if isinstance(value, Markup) else Markup(html.escape(clean_line(str(value))))  # noqa: S704 (escaped)


@cache
def templates() -> Environment:
    """Return the templates of pages, which escape every text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(loader=PackageLoader("bridge.client.page"), autoescape=True, undefined=StrictUndefined)


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole document of at most `PAGE_MAX_BYTES`: a part that does not fit is left out, and it says so."""
    head = templates().get_template("head.html.jinja").render(title=clean_line(title))
    return f"{head}{''.join(_fitting(parts, PAGE_MAX_BYTES - len(head.encode())))}</body></html>\n"


def _fitting(parts: Iterable[str], room: int) -> Iterator[str]:
    for part in parts:
        size = len(part.encode())
        fits = size <= room - _NOTICES_BYTES
        paragraph = f"<p>A part of {size / 1e6:.1f} MB, too large for a page, is left out here. The files have it.</p>"
        room -= size if fits else len(paragraph)
        yield part if fits else paragraph


def section(title: str, *parts: str) -> str:
    """Return a titled part; nothing where all of it is empty."""
    body = "".join(parts)
    return f"<section><h2>{text(title)}</h2>{body}</section>" if body else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; nothing without rows."""
    named = [f' data-of="{text(name)}"' for name in head]
    lines = [
        "".join(f"<td{of}>{text(cell)}</td>" for of, cell in zip_longest(named, row, fillvalue="")) for row in rows
    ]
    if not lines:
        return ""
    top = f"<thead><tr>{''.join(f'<th>{text(name)}</th>' for name in head)}</tr></thead>" if head else ""
    return f'<div class="wide"><table>{top}<tbody>{"".join(f"<tr>{line}</tr>" for line in lines)}</tbody></table></div>'


def left_out(rows: Sequence[object], what: str) -> str:
    """Return how many rows a table of `LISTED` does not show; nothing where it shows all."""
    return f"<p>{len(rows) - LISTED} {text(what)}.</p>" if len(rows) > LISTED else ""


def marked(kind: str, value: object) -> Markup:
    """Return a text with the class that colours it."""
    return Markup('<span class="{}">{}</span>').format(kind, text(value))


def lines(values: Iterable[str]) -> str:
    """Return lines as they are, their breaks kept."""
    return f"<pre>{chr(10).join(text(value) for value in values)}</pre>"


def last_fitting(values: Sequence[str], most_bytes: int) -> Sequence[str]:
    """Return the last lines of those that take at most so many bytes of a page."""
    count = 0
    for value in reversed(values):
        most_bytes -= len(text(value).encode()) + 1
        if most_bytes < 0:
            break
        count += 1
    return values[len(values) - count :]
