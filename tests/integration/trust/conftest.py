"""Keys that are made once for all tests of a file, and a host that knows two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.ssh_keys import Key, make_key, signers_line, write_list
from tests.integration.trust.asking import OTHER, policy
from tests.support.runner_world import clock, world

__all__ = ["clock", "world"]


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> dict[str, Key]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_key(folder, name) for name in ("agent", "other", "dev")}


@pytest.fixture
def lists(tmp_path: Path, keys) -> Path:
    tmp_path.chmod(0o700)
    write_list(tmp_path / "signers", signers_line(keys["agent"]), signers_line(keys["other"], OTHER))
    return tmp_path


@pytest.fixture
def host(world, lists):
    def make(*more: str, **changes):
        return world(policy_text=policy(lists, *more), **changes)

    return make
