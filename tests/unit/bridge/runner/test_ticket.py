"""How a ticket gets to a runner: a variable that no other process finds afterwards, or a pipe."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.runner.authorisation.ticket import piped_ticket, take_variable

_CHILD = """
import subprocess, sys
from bridge.runner.authorisation.ticket import take_variable
def seen():
    return subprocess.run(["cat", f"/proc/{__import__('os').getpid()}/environ"], capture_output=True).stdout
print(b"s3cret" in seen(), take_variable("KAKEYA_TICKET"), b"s3cret" in seen(), take_variable("KAKEYA_TICKET"))
print(subprocess.run(["env"], capture_output=True, text=True).stdout)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the kernel shows no environments here")
def test_a_child_of_the_same_user_finds_no_ticket_in_what_the_runner_was_started_with() -> None:
    environment = {**os.environ, "KAKEYA_TICKET": "s3cret", "AFTER": "it"}
    done = subprocess.run([sys.executable, "-c", _CHILD], env=environment, capture_output=True, text=True, check=True)
    first, *rest = done.stdout.splitlines()
    assert first == "True s3cret False None"
    assert "AFTER=it" in rest
    assert "s3cret" not in "".join(rest)


def test_what_was_set_since_and_what_is_empty_go_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_TICKET", "")
    assert (take_variable("KAKEYA_TICKET"), take_variable("KAKEYA_TICKET")) == ("", None)
    monkeypatch.setenv("KAKEYA_TICKET", "later")
    assert take_variable("KAKEYA_TICKET") == "later"
    assert "KAKEYA_TICKET" not in os.environ


@pytest.mark.parametrize("data", [b"", b"no ticket", b"x" * 100_000])
def test_a_pipe_that_brings_no_ticket_is_refused_and_its_bytes_are_not_shown(data: bytes) -> None:
    with pytest.raises(UsageError, match="standard input holds no ticket"):
        piped_ticket(io.BytesIO(data))


def test_a_runner_that_was_started_without_a_standard_input_is_told_so_in_one_line() -> None:
    command = [sys.executable, "-m", "bridge.cli.host.main", "once", "--ephemeral", "--ticket", "-"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--ticket - reads the ticket from standard input, which is closed" in done.stderr
    assert "Traceback" not in done.stderr
