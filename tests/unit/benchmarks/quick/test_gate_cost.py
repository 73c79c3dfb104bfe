"""What judging costs can be measured for each kind of report, whatever comes beside the report."""

from __future__ import annotations

from benchmarks.quick import gate_cost


def test_each_kind_of_report_is_judged_and_set_beside_parsing_it():
    figures = {figure.name: figure.value for figure in gate_cost.measure(repeats=1)}
    ratios = {name: value for name, value in figures.items() if name.endswith("to parse and validate")}
    assert [name.split()[1] for name in ratios] == ["probe", "suite", "smoke", "claim"]
    assert min(figures.values()) > 0
