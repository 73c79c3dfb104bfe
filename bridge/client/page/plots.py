"""Plots as SVG by matplotlib (extra `report`); without it a page has its tables alone.

Same numbers, same bytes: no date, no random ids, text stays text. Names and units are of reports, which anybody wrote:
they are cleaned, cut, and never read as formulas.
"""

from __future__ import annotations

import html
import importlib.util
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bridge.client.document.untrusted import clean_line

_WIDTH_IN: Final = 8.0
_NAME_CHARS: Final = 40
_MOST: Final = 1e100  # beyond it axes are no longer computed in doubles
_VECTOR_POINTS: Final = 1000  # more of them are drawn as pixels: a mark takes about 90 bytes
_SETTINGS: Final = {
    "svg.fonttype": "none", "svg.hashsalt": "kakeya", "font.size": 9.0, "path.simplify_threshold": 0.5,
    "text.parse_math": False,
}  # fmt: skip

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points (x, y) by name."""


def is_available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def intervals(rows: Sequence[tuple[str, float, tuple[float, float]]], unit: str, reference: float | None) -> str:
    """Return values with their intervals, one a line.

    Args:
        rows: name, value, and both ends of the interval.
        unit: of all of them.
        reference: where a line is drawn, e.g. 1 for a ratio; None for none.
    """
    rows = [row for row in rows if all(abs(number) < _MOST for number in (row[1], *row[2]))]

    def draw(axes: Any) -> None:
        for at, (_, value, (low, high)) in enumerate(reversed(rows)):
            axes.plot([low, high], [at, at], color="#4477aa", linewidth=2)
            axes.plot([value], [at], "o", color="#4477aa")
        axes.set_yticks(range(len(rows)), [_name(name) for name, _, _ in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(_name(unit))
        if reference is not None:
            axes.axvline(reference, color="#888888", linestyle=":")

    return _figure(draw, f"intervals in {_name(unit)}", 0.7 + 0.35 * len(rows)) if rows else ""


def dots(series: Series, x: str, y: str) -> str:
    """Return points of several series, a colour each."""
    return _series(series, x, y, f"{_name(y)} over {_name(x)}", 2.8, marker=".", linestyle="", markersize=5)


def over_time(series: Series, y: str) -> str:
    """Return lines over seconds."""
    return _series(series, "seconds", y, f"{_name(y)} over time", 2.2, linewidth=1)


def _series(series: Series, x: str, y: str, about: str, height_in: float, **style: Any) -> str:
    shown = {name: [one for one in points if max(map(abs, one)) < _MOST] for name, points in series.items()}
    pixels = sum(map(len, shown.values())) > _VECTOR_POINTS

    def draw(axes: Any) -> None:
        for name, points in shown.items():
            xs, ys = [a for a, _ in points], [b for _, b in points]
            axes.plot(xs, ys, label=_name(name), rasterized=pixels, **style)
        axes.set_xlabel(_name(x))
        axes.set_ylabel(_name(y))
        if len(shown) > 1:
            axes.legend(loc="best", fontsize=8)

    return _figure(draw, about, height_in) if any(shown.values()) else ""


def _name(text: str) -> str:
    clean = clean_line(text)
    return clean if len(clean) <= _NAME_CHARS else f"{clean[: _NAME_CHARS - 1]}…"


def _figure(draw: Callable[[Any], None], about: str, height_in: float) -> str:
    if not is_available():
        return ""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of characters that a font lacks, which the browser's need not
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        draw(figure.subplots())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    drawing = out.getvalue()
    return f'<figure role="img" aria-label="{html.escape(about)}">{drawing[drawing.index("<svg") :]}</figure>'
