"""What the engine says when something that it needs is not there."""

from __future__ import annotations

import importlib

import pytest

from engine.errors import BackendMissingError, needs_extra


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    message = r"gRPC cannot be imported: No module named 'nothing'\. Install it .*pip install -e '\.\[distributed\]'"
    with pytest.raises(BackendMissingError, match=message), needs_extra("distributed", "gRPC"):
        importlib.import_module("nothing")
