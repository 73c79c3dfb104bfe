"""Plots as SVG, drawn here: places of marks as numbers, their markup in a template that escapes every text.

Same numbers, same bytes. Names and units are of reports, which anybody wrote: they are cleaned and cut. Colours are
those of the page's style, in either theme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.client.document.untrusted import clean_line
from bridge.client.page.markup import templates
from bridge.launches.figures import UNITLESS

_WIDTH: Final = 760
_NAME_CHARS: Final = 40
_CHAR_WIDTH: Final = 7.4  # of the font of labels, at most but in capitals
_MOST: Final = 1e100  # beyond it axes are no longer computed in doubles
_LEAST: Final = 1e-290  # nor with a margin below it: a fifth of the length of an axis would be nothing
_POINTS_MOST: Final = 4000  # of a plot; of more, every so manieth is drawn
_LEGEND_MOST: Final = 6  # colours of the style: a seventh would look like the first
_TICKS: Final = 5
_TOP, _BELOW, _RIGHT = 18.0, 40.0, 16.0

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points (x, y) by name."""


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: where it is on the drawing, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Drawing:
    """One path: ``dots``, ``line`` or ``bars``."""

    kind: str
    path: str


@dataclass(frozen=True)
class Plot:
    """What the template draws; lengths in units of its view box."""

    about: str
    height: float
    left: float
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    drawings: Sequence[Drawing]
    x_label: str
    y_label: str = ""
    legend: Sequence[str] = ()
    reference: float | None = None
    y_grid: bool = True
    legend_width: float = 0.0
    width: float = _WIDTH
    top: float = _TOP

    @property
    def bottom(self) -> float:
        """Where the x axis is."""
        return self.height - _BELOW

    @property
    def right(self) -> float:
        """Where the axes end: the legend stands beside them, over no point."""
        return self.width - _RIGHT - self.legend_width


@dataclass(frozen=True)
class _Scale:
    """Maps numbers onto a length of the drawing."""

    low: float
    high: float
    begin: float
    end: float

    @classmethod
    def over(cls, numbers: Iterable[float], begin: float, end: float) -> _Scale:
        """Return the scale that shows all of some numbers with a margin."""
        numbers = list(numbers)
        low, high = min(numbers), max(numbers)
        margin = (high - low) * 0.04 or abs(high) * 0.05
        margin = margin if margin > _LEAST else 1.0
        return cls(low - margin, high + margin, begin, end)

    def at(self, number: float) -> float:
        """Return where a number is."""
        return round(self.begin + (number - self.low) / (self.high - self.low) * (self.end - self.begin), 1)

    def ticks(self, least: float = 0.0) -> list[Tick]:
        """Return marks at round numbers, no nearer to each other than that."""
        rough = (self.high - self.low) / _TICKS
        unit = 10.0 ** math.floor(math.log10(rough))
        step = max(least, next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough))
        first = math.ceil(self.low / step)
        numbers = [place * step for place in range(first, math.floor(self.high / step) + 1)]
        return [Tick(self.at(number), f"{number:.6g}") for number in numbers]


def intervals(rows: Sequence[tuple[str, float, tuple[float, float]]], unit: str, reference: float | None) -> str:
    """Return values with their intervals, one a line.

    Args:
        rows: name, value, and both ends of the interval.
        unit: of all of them.
        reference: where a line is drawn, e.g. 1 for a ratio; None for none.
    """
    rows = [row for row in rows if all(abs(number) < _MOST for number in (row[1], *row[2]))]
    if not rows:
        return ""
    names = [_name(name) for name, _, _ in rows]
    left = 16 + _CHAR_WIDTH * max(map(len, names))
    numbers = [number for _, value, ends in rows for number in (value, *ends)]
    scale = _Scale.over([*numbers, *([] if reference is None else [reference])], left, _WIDTH - _RIGHT)
    places = [_TOP + 14 + 26 * number for number in range(len(rows))]
    rowed = list(zip(places, rows, strict=True))
    bars = "".join(f"M{scale.at(low)} {at}H{scale.at(high)}" for at, (_, _, (low, high)) in rowed)
    dots = "".join(f"M{scale.at(value)} {at}h0" for at, (_, value, _) in rowed)
    return _drawn(
        Plot(
            about=f"intervals in {_name(unit)}",
            height=places[-1] + 16 + _BELOW,
            left=left,
            x_ticks=scale.ticks(),
            y_ticks=[Tick(at, name) for at, name in zip(places, names, strict=True)],
            drawings=[Drawing("bars", bars), Drawing("dots", dots)],
            x_label=_name(unit),
            reference=None if reference is None else scale.at(reference),
            y_grid=False,
        )
    )


def dots(series: Series, x: str, y: str) -> str:
    """Return points of several series, a colour each."""
    return _series(series, x, y, f"{_name(y)} over {_name(x)}", 270, "dots")


def over_time(series: Series, y: str) -> str:
    """Return lines over seconds."""
    return _series(series, "seconds", y, f"{_name(y)} over time", 215, "line")


def _series(series: Series, x: str, y: str, about: str, height: float, kind: str) -> str:  # noqa: PLR0917
    shown = {name: [point for point in points if max(map(abs, point)) < _MOST] for name, points in series.items()}
    shown = {name: points for name, points in shown.items() if len(points) > (kind == "line")}
    if not shown:
        return ""
    every = max(1, math.ceil(sum(map(len, shown.values())) / _POINTS_MOST))
    left = 64.0
    legend = [_name(name) for name in list(shown)[:_LEGEND_MOST]] if len(shown) > 1 else []
    if len(shown) > _LEGEND_MOST:
        legend.append(f"and {len(shown) - _LEGEND_MOST} more")
    legend_width = 12 + _CHAR_WIDTH * max(map(len, legend)) if legend else 0.0
    right = _WIDTH - _RIGHT - legend_width
    across = _Scale.over((a for points in shown.values() for a, _ in points), left, right)
    up = _Scale.over((b for points in shown.values() for _, b in points), height - _BELOW, _TOP)
    drawings = []
    for points in shown.values():
        places = [(across.at(a), up.at(b)) for a, b in points[::every]]
        if kind == "line":
            path = "M" + "L".join(f"{a} {b}" for a, b in places)
        else:
            path = "".join(f"M{a} {b}h0" for a, b in places)
        drawings.append(Drawing(kind, path))
    return _drawn(
        Plot(
            about=about,
            height=height,
            left=left,
            x_ticks=across.ticks(1.0 if kind == "dots" else 0.0),  # dots stand over whole numbers
            y_ticks=up.ticks(),
            drawings=drawings,
            x_label=_name(x),
            y_label=_name(y),
            legend=legend,
            legend_width=legend_width,
        )
    )


def labelled(name: str, unit: str) -> str:
    """Return a name with its unit, where it has one."""
    return name if unit == UNITLESS else f"{name} ({unit})"


def _name(text: str) -> str:
    clean = "no unit" if text == UNITLESS else clean_line(text)
    return clean if len(clean) <= _NAME_CHARS else f"{clean[: _NAME_CHARS - 1]}…"


def _drawn(plot: Plot) -> str:
    return templates().get_template("plot.svg.jinja").render(plot=plot)
