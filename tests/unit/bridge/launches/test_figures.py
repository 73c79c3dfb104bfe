"""A number has as many digits as its interval says something of."""

from __future__ import annotations

import pytest

from bridge.launches.figures import outward, proportion, shown


@pytest.mark.parametrize(
    ("value", "unit", "interval", "text"),
    [
        (12345.0, "bytes", None, "12,345 bytes"),
        (12345.0, "bytes", (12345.0, 12345.0), "12,345 bytes [12,345, 12,345]"),
        (1234567.0, "bytes", None, "1,234,567 bytes"),
        (1234567.0, "bytes", (1224567.0, 1244567.0), "1.235 MB [1.224, 1.245]"),
        (2.5e9, "tokens", (2.4e9, 2.6e9), "2.50 G tokens [2.40, 2.60]"),
        (1.935, "nats", (1.9, 1.97), "1.935 nats [1.900, 1.970]"),
        (0.5, "1", (0.25, 0.75), "0.50 [0.25, 0.75]"),
        (12345.6, "s", (12000.0, 12700.0), "12,350 s [12,000, 12,700]"),
        (0.0000123, "s", None, "1.230e-05 s"),
        (0.0, "s", None, "0 s"),
        (41.0, "tests", None, "41 tests"),
    ],
)
def test_digits_follow_the_interval(value, unit, interval, text):
    assert str(shown(value, unit, interval)) == text


@pytest.mark.parametrize(
    ("low", "high", "decimals", "printed"),
    [
        (1.7451, 1.7749, 2, (1.74, 1.78)),
        (1.0199, 1.0501, 2, (1.01, 1.06)),
        (0.29, 1.16, 2, (0.29, 1.16)),
        (0.29 + 1e-15, 1.16 - 1e-15, 2, (0.29, 1.16)),
        (0.29 - 1e-12, 1.16 + 1e-12, 2, (0.29, 1.16)),
        (-0.0304, -0.0101, 2, (-0.04, -0.01)),
        (-0.0101, 0.0001, 2, (-0.02, 0.01)),
        (0.0004, 5.0, 2, (0.0, 5.0)),
        (12344.0, 12716.0, -1, (12340.0, 12720.0)),
        (0.0, 1e304, 2, (0.0, 1e304)),
    ],
)
def test_a_bound_is_never_rounded_towards_the_other(low, high, decimals, printed):
    assert outward(low, high, decimals) == printed


def test_an_interval_is_never_printed_narrower_than_it_is():
    assert str(shown(1.76, "s", (1.7451, 1.7749))) == "1.760 s [1.745, 1.775]"
    assert str(shown(0.0061, "1", (0.00329, 0.00739))) == "0.0061 [0.0032, 0.0074]"
    assert str(shown(0.1234567, "1", (0.1234567, 0.1234567))) == "0.1235 [0.1234, 0.1235]"
    assert str(shown(2e-5, "s", (1.04e-5, 9.96e-5))) == "2.0e-05 s [1.0e-05, 0.000100]"


def test_a_share_of_none_of_many_items_is_not_printed_as_surely_none():
    most = 1.0 - 0.025 ** (1 / 10_000)  # Clopper and Pearson of 0 of 10,000
    assert most == pytest.approx(0.00037, abs=1e-5)
    assert proportion(0.0, (0.0, most)) == "0.000 [0.000, 0.001]"
    assert proportion(1.0, (1.0 - most, 1.0)) == "1.000 [0.999, 1.000]"
