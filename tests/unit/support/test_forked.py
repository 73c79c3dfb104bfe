"""What other processes part from can be imported: where it cannot, each of them would import everything anew."""

from __future__ import annotations

from importlib import import_module

from tests.support.forked import PRELOAD


def test_what_is_preloaded_is_there() -> None:
    for name in PRELOAD:
        import_module(name)
