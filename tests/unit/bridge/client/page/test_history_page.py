"""What a preset gave over time, as plots: numbers of two units, or of two claims, share no axis."""

from __future__ import annotations

from bridge.client.evidence.history import HistoryRow, by_number
from bridge.client.page.bus_page import BusView, page_of_bus
from bridge.client.page.history_page import page_of_history


def row(number, unit, value, metric="elapsed"):
    return HistoryRow(
        id=f"{number:026}", ended="2026-11-29T10:00:00Z", params="", host="mini", code="a" * 12, metric=metric,
        value=value, interval=None, unit=unit, better="lower", decision="valid", text="", quotation="measured",
        profile="claim", role="primary",
    )  # fmt: skip


SECONDS_THEN_MILLISECONDS = [row(1, "s", 1.5), row(2, "s", 1.6), row(3, "ms", 1500.0), row(4, "ms", 1600.0)]


def test_a_metric_whose_unit_was_changed_has_a_plot_for_each_unit():
    shown = page_of_history("my-train", SECONDS_THEN_MILLISECONDS)
    assert "4 runs are stored here" in shown
    assert shown.count("<svg") == 2
    seconds, milliseconds = shown.split("<h2>elapsed (ms)</h2>")
    assert "<h2>elapsed (s)</h2>" in seconds
    assert ">1500<" not in seconds
    assert ">1500<" in milliseconds


def test_the_page_of_a_bus_draws_each_unit_by_itself_too():
    view = BusView("route", "now", (), (), {"my-train": SECONDS_THEN_MILLISECONDS}, {})
    shown = page_of_bus(view)
    assert shown.count("<svg") == 2
    assert ">elapsed (s)<" in shown
    assert ">elapsed (ms)<" in shown


def test_two_primary_claims_of_one_run_are_two_series():
    rows = [row(1, "ratio", 1.5, "recall_q8"), row(1, "ratio", 0.5, "recall_q4"), row(2, "ratio", 1.6, "recall_q8")]
    assert {name: [each.value for each in group] for name, group in by_number(rows).items()} == {
        ("recall_q8", "ratio"): [1.5, 1.6],
        ("recall_q4", "ratio"): [0.5],
    }
