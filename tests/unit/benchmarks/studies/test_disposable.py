"""The study of damaged states counts a run as named only where its requester reads what to do."""

from __future__ import annotations

import pytest

from benchmarks.studies.runner.disposable import names_what_to_do

RUN = "01m8kw5d39qsa7j3dnp652xkwt"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (f"deleted refs/heads/mac-bridge/count-{RUN}: nobody here has it; next: kakeya-mac retry {RUN}", True),
        (f"this runner may have begun request {RUN} before its state was lost", True),
        (f"deleted refs/kakeya/log/{RUN}: a result holds its run's whole log", False),
        (f"deleted refs/kakeya/claim/{RUN[:-1]}x: nobody here has it; next: kakeya-mac retry {RUN[:-1]}x", False),
    ],
)
def test_a_run_is_named_by_a_line_that_says_how_to_ask_again(line, names):
    assert names_what_to_do(line, RUN) is names
