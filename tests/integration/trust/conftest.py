"""Keys that are made once for all tests of a file."""

from __future__ import annotations

import pytest

from tests.fakes.ssh_keys import Key, make_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> dict[str, Key]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_key(folder, name) for name in ("agent", "other", "dev")}
