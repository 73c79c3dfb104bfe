"""Plots drawn here: marks where the numbers are, names escaped, few bytes for many points."""

from __future__ import annotations

import re

import pytest

from bridge.client.page import plots


def test_marks_are_where_the_numbers_are_and_ticks_are_round():
    drawing = plots.dots({"a": [(0, 1.0), (10, 2.0)]}, "step", "loss")
    ((x1, y1), (x2, y2)) = [tuple(map(float, pair)) for pair in re.findall(r"M([\d.]+) ([\d.]+)h0", drawing)]
    assert (x1 < x2, y1 > y2) == (True, True)
    assert {"0", "5", "10"} <= set(re.findall(r">([^<>]+)</text>", drawing))
    assert "stroke:" not in drawing, "colours are the page's, in either theme"


def test_an_interval_is_a_bar_with_its_value_on_it():
    drawing = plots.intervals([("median", 2.0, (1.0, 3.0)), ("mean", 2.5, (2.5, 2.5))], "s", 2.0)
    low, high = map(float, re.search(r'class="bars s0" d="M([\d.]+) [\d.]+H([\d.]+)', drawing).groups())
    value = float(re.search(r'class="dots s0" d="M([\d.]+)', drawing)[1])
    reference = float(re.search(r'class="reference" d="M([\d.]+)', drawing)[1])
    assert low < value == reference < high


@pytest.mark.parametrize("numbers", [[0.0], [5.0, 5.0], [1e-12, 2e-12], [-1e90, 1e90], [0.1 + 0.2, 0.3],
                                     [1e-322, 1e-322], [0.0, 5e-324]])  # fmt: skip
def test_equal_small_and_large_numbers_have_axes(numbers):
    assert "<svg" in plots.dots({"a": list(enumerate(numbers))}, "x", "y")


def test_a_name_never_becomes_markup_or_leaves_the_drawing():
    drawing = plots.dots({"<script>" + "x" * 90: [(0, 1)], '"><b': [(1, 2)]}, "<x>", "&y")
    assert "<script" not in drawing
    assert "<b" not in drawing
    assert "&lt;script&gt;" in drawing
    assert "…" in drawing


def test_many_points_are_few_bytes():
    many = {"a": [(at, at % 7) for at in range(100_000)]}
    assert len(plots.dots(many, "x", "y")) < 80_000
    assert len(plots.over_time(many, "y")) < 80_000


def test_nothing_and_numbers_without_an_axis_draw_nothing():
    assert plots.dots({}, "x", "y") == plots.dots({"a": [(0, 1e200)]}, "x", "y") == plots.intervals([], "s", None) == ""


def test_a_legend_stands_beside_the_points_and_names_no_more_series_than_there_are_colours():
    series = {f"lr=0.{at}": [(at, at / 10)] for at in range(9)}
    svg = plots.dots(series, "run", "loss")
    words = re.findall(r'x="([\d.]+)" y="[\d.]+">([^<]+)<', svg)
    legend = [float(x) for x, name in words if "=" in name or "more" in name]
    points = [float(x) for x in re.findall(r"M([\d.]+) [\d.]+h0", svg)]
    assert len(legend) == 7
    assert "and 3 more" in svg
    assert max(points) < min(legend)
