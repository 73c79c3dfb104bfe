"""A number has as many digits as its interval says something of."""

from __future__ import annotations

import pytest

from bridge.launches.figures import shown


@pytest.mark.parametrize(
    ("value", "unit", "interval", "text"),
    [
        (12345.0, "bytes", None, "12,345 bytes"),
        (12345.0, "bytes", (12345.0, 12345.0), "12,345 bytes [12,345, 12,345]"),
        (1234567.0, "bytes", None, "1,234,567 bytes"),
        (1234567.0, "bytes", (1224567.0, 1244567.0), "1.235 MB [1.225, 1.245]"),
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
