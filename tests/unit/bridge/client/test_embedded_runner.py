"""An embedded runner that cannot start is given up, also where it holds its lock for a moment before it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.client.connection.embedded import SERVES_LOOKS, STARTS_MAX, EmbeddedRunner
from bridge.errors import InfrastructureError
from bridge.system.durable import NameLock


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedRunner:
    """Return one whose every start is a process that has ended."""

    def start_and_end(*_words, **_settings) -> int:
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as process:
            return process.pid

    monkeypatch.setattr("bridge.system.process.spawn_detached", start_and_end)
    (tmp_path / "runner").mkdir()
    return EmbeddedRunner(tmp_path, tmp_path)


def held(runner: EmbeddedRunner, looks: int) -> None:
    """Let it be asked for so often while somebody holds the lock."""
    with NameLock(runner.folder / "runner" / "lock").held():
        assert [runner.wake() for _ in range(looks)] == [False] * looks


def test_one_that_held_its_lock_for_a_moment_has_not_served(runner: EmbeddedRunner) -> None:
    for _ in range(STARTS_MAX):
        assert runner.wake()
        held(runner, 1)
    with pytest.raises(InfrastructureError, match=f"ended {STARTS_MAX} times as soon as it was started"):
        runner.wake()


def test_what_one_said_last_is_its_error_and_not_what_to_do_about_it(runner: EmbeddedRunner) -> None:
    runner.log.write_text("error  no lock can be taken on it\nnext    use a folder on a disk of this machine\n")
    for _ in range(STARTS_MAX):
        assert runner.wake()
    with pytest.raises(InfrastructureError) as refused:
        runner.wake()
    assert refused.value.message.endswith("as soon as it was started: error  no lock can be taken on it")


def test_one_that_has_served_is_started_again(runner: EmbeddedRunner) -> None:
    for _ in range(STARTS_MAX + 1):
        assert runner.wake()
        held(runner, SERVES_LOOKS)
