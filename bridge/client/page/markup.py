"""HTML from texts: every text is cleaned and escaped here, so that nothing in a result becomes markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from bridge.client.document.untrusted import clean_line

STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--bad:#c62828;--some:#9a6700;
--s0:#2a6496;--s1:#b3403a;--s2:#2a7d3a;--s3:#8a6d00;--s4:#8e44ad;--s5:#00758a}
@media(prefers-color-scheme:dark){:root{--good:#56d364;--bad:#ff7b72;--some:#e3b341;
--s0:#79b8ff;--s1:#ff9492;--s2:#6fdd8b;--s3:#e3c45a;--s4:#d2a8ff;--s5:#66d9e8}}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:64rem;padding:1rem;overflow-wrap:break-word}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem;border-bottom:1px solid var(--line)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0;max-width:30rem}
td,th{border-bottom:1px solid var(--line)}
.verdict{font-size:1.15rem;font-weight:600}.evidence,.held{color:var(--good)}
.rejected,.missing,.nothing{color:var(--bad)}.valid,.recorded{color:var(--some)}
pre{white-space:pre-wrap;border:1px solid var(--line);padding:.6rem;font-size:13px;overflow-wrap:anywhere}
figure{margin:1rem 0}svg text{fill:currentColor;font-size:12px}
.grid{stroke:var(--line)}.reference{stroke:currentColor;stroke-dasharray:2 4}.dots,.bars,.line{fill:none}
.dots{stroke-width:5;stroke-linecap:round}.bars{stroke-width:2}.line{stroke-width:1.3}
path.s0{stroke:var(--s0)}path.s1{stroke:var(--s1)}path.s2{stroke:var(--s2)}path.s3{stroke:var(--s3)}path.s4{stroke:var(--s4)}
path.s5{stroke:var(--s5)}svg text.s0{fill:var(--s0)}svg text.s1{fill:var(--s1)}svg text.s2{fill:var(--s2)}
svg text.s3{fill:var(--s3)}svg text.s4{fill:var(--s4)}svg text.s5{fill:var(--s5)}
svg,img{max-width:100%;height:auto;display:block}
@media(max-width:40rem){thead{display:none}tr,td{display:block;border:0;max-width:none}
tr{padding:.4rem 0;border-bottom:1px solid var(--line)}td[data-of]::before{content:attr(data-of)": ";opacity:.7}
figure{overflow-x:auto}figure svg{max-width:none;width:36rem}}
"""
# On a phone a row of a table becomes a block of lines, each with the name of its column, and a plot can be moved.
LISTED: Final = 400  # rows of a table that grows
PAGE_MAX_BYTES: Final = 1_000_000
_NOTICES_BYTES: Final = 20_000  # kept for what is said in the place of parts, and for the end
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def text(value: object) -> str:
    """Return a value as escaped text of one line."""
    return html.escape(clean_line(str(value)))


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole document of at most `PAGE_MAX_BYTES`: a part that does not fit is left out, and it says so."""
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body>"
    )
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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are markup already; nothing without rows."""
    named = [f' data-of="{text(name)}"' for name in head]
    lines = ["".join(f"<td{of}>{cell}</td>" for of, cell in zip_longest(named, row, fillvalue="")) for row in rows]
    if not lines:
        return ""
    top = f"<thead><tr>{''.join(f'<th>{text(name)}</th>' for name in head)}</tr></thead>" if head else ""
    return f'<div class="wide"><table>{top}<tbody>{"".join(f"<tr>{line}</tr>" for line in lines)}</tbody></table></div>'


def left_out(rows: Sequence[object], what: str) -> str:
    """Return how many rows a table of `LISTED` does not show; nothing where it shows all."""
    return f"<p>{len(rows) - LISTED} {text(what)}.</p>" if len(rows) > LISTED else ""


def marked(kind: str, value: object) -> str:
    """Return a text with the class that colours it."""
    return f'<span class="{html.escape(kind, quote=True)}">{text(value)}</span>'


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
