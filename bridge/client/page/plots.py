"""Plots as SVG by matplotlib (extra `report`); without it a page has its tables alone.

Same numbers, same bytes: no date, no random ids, text stays text.
"""

from __future__ import annotations

import html
import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_WIDTH_IN: Final = 8.0
_SETTINGS: Final = {"svg.fonttype": "none", "svg.hashsalt": "kakeya", "font.size": 9.0, "path.simplify_threshold": 0.5}

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

    def draw(axes: Any) -> None:
        for at, (_, value, (low, high)) in enumerate(reversed(rows)):
            axes.plot([low, high], [at, at], color="#4477aa", linewidth=2)
            axes.plot([value], [at], "o", color="#4477aa")
        axes.set_yticks(range(len(rows)), [name for name, _, _ in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(unit)
        if reference is not None:
            axes.axvline(reference, color="#888888", linestyle=":")

    return _figure(draw, f"intervals in {unit}", 0.7 + 0.35 * len(rows)) if rows else ""


def dots(series: Series, x: str, y: str) -> str:
    """Return points of several series, a colour each."""

    def draw(axes: Any) -> None:
        for name, points in series.items():
            axes.plot([a for a, _ in points], [b for _, b in points], ".", label=name, markersize=5)
        _finish(axes, x, y, len(series))

    return _figure(draw, f"{y} over {x}", 2.8) if any(series.values()) else ""


def over_time(series: Series, y: str) -> str:
    """Return lines over seconds."""

    def draw(axes: Any) -> None:
        for name, points in series.items():
            axes.plot([a for a, _ in points], [b for _, b in points], label=name, linewidth=1)
        _finish(axes, "seconds", y, len(series))

    return _figure(draw, f"{y} over time", 2.2) if any(series.values()) else ""


def _finish(axes: Any, x: str, y: str, count: int) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if count > 1:
        axes.legend(loc="best", fontsize=8)


def _figure(draw: Callable[[Any], None], about: str, height_in: float) -> str:
    if not is_available():
        return ""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        draw(figure.subplots())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    drawing = out.getvalue()
    return f'<figure role="img" aria-label="{html.escape(about)}">{drawing[drawing.index("<svg") :]}</figure>'
