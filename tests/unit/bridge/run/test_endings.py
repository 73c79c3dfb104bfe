"""An ending can always be written down, whatever the workload put into its message."""

from __future__ import annotations

import pytest

from bridge.limits import TEXT_MAX_CHARS
from bridge.run.outcomes import Ending, one_line


@pytest.mark.parametrize("text", ["x" * 5000, "two\nlines", "\x1b[31mred\x00", " " * 3000 + "end", "\ud800"])
def test_a_message_fits_a_record(text: str) -> None:
    message = Ending("gate_rejected", text).message
    assert message == one_line(text)
    assert len(message) <= TEXT_MAX_CHARS
    assert message.isprintable() or not message


def test_no_message_stays_none() -> None:
    assert Ending("passed").message is None
