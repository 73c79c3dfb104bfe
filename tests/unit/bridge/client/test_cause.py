"""Which line of a log is shown as why a run failed."""

from __future__ import annotations

import pytest

from bridge.client.run.cause import telling_line


@pytest.mark.parametrize(
    ("reason", "log", "line"),
    [
        ("program_failed", "loading\nValueError: no such file\nmore\n", "ValueError: no such file"),
        ("program_failed", "no error so far\nSegmentation fault\n", "Segmentation fault"),
        ("gate_rejected", "12 passed, 0 failed\n", None),
        ("gate_rejected", "1 failed, 11 passed\n", "1 failed, 11 passed"),
        ("passed", "error: of no account\n", None),
        (
            "program_failed",
            "./bench: No such file or directory\nbase: ./bench ended with 127\n[kakeya] 1 launches: the run ended\n",
            "./bench: No such file or directory",
        ),
        ("program_failed", "it gave up\n[kakeya] 1 launches of speedup: the run ended\n", "it gave up"),
    ],
)
def test_the_last_error_tells_and_a_count_of_none_is_none(reason: str, log: str, line: str | None) -> None:
    assert telling_line(reason, log.encode()) == line
