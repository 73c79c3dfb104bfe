"""Every situation of `tests/data/hosts.toml` names tests that are there."""

from __future__ import annotations

import tomllib

from tests.drift import ROOT


def test_each_situation_is_shown_by_tests_that_are_there() -> None:
    situations = tomllib.loads((ROOT / "tests" / "data" / "hosts.toml").read_text("utf-8"))["situations"]
    names = [(name, test.partition("::")) for name, tests in situations.items() for test in tests]
    assert all(situations.values())
    assert [
        name for name, (path, _mark, function) in names if f"def {function}(" not in (ROOT / path).read_text("utf-8")
    ] == []
