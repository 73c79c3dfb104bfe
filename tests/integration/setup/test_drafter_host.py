"""The set-up of a drafter's host, with a stand-in for ssh that runs everything here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "runner-setup" / "drafter_host.sh"
HASH = "ab" * 32


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a script whose ssh is a shell and whose engine says what it was asked."""
    (tmp_path / "home").mkdir()
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != there ]; do shift; done\nshift\ncd "$HOME" && exec sh -c "$*"\n')
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\n[ "$2" = agree ] && echo {HASH} || echo "$@"\n')
    for path in (ssh, engine):
        path.chmod(0o755)
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), "SSH": str(ssh), "ENGINE": str(engine)}


def asked(tools: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), *words]
    return subprocess.run(command, env=tools, capture_output=True, text=True, timeout=300, check=False)


def installed(tools: dict[str, str], says: str) -> None:
    program = Path(tools["HOME"], "kakeya-drafter/.venv/bin/kakeya-engine")
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "{says}" # "$@"\n')
    program.chmod(0o755)


def test_the_planner_is_asked_with_the_measured_link_before_anything_is_installed(tools: dict[str, str]) -> None:
    done = asked(tools, "check", "there", "--target", "a name", "--target-ms", "40")
    assert done.returncode == 0, done.stderr
    link, agreement, there, plan = done.stdout.splitlines()
    assert link.startswith("link      there: round trip ")
    assert agreement == f"agreement {HASH}"
    assert there == "there     nothing is installed yet"
    assert plan.startswith("distributed plan --target a name --link-ms ")
    assert plan.endswith(" --target-ms 40")
    assert list(Path(tools["HOME"]).iterdir()) == []


@pytest.mark.parametrize(("says", "code"), [(HASH, 0), ("cd" * 32, 2)])
def test_a_host_that_would_serve_another_drafter_is_found(tools: dict[str, str], says: str, code: int) -> None:
    installed(tools, says)
    done = asked(tools, "check", "there")
    assert done.returncode == code
    assert ("the same" in done.stdout) == (code == 0)
    assert ("another drafter" in done.stderr) == (code != 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "usage"),
        (("check",), "no HOST"),
        (("check", "-oProxyCommand=x"), "no HOST"),
        (("check", "there", "--target"), "--target lacks its value"),
        (("check", "there", "--port", "0.0.0.0"), "unknown option --port"),
    ],
)
def test_a_wrong_call_does_nothing(tools: dict[str, str], words: tuple[str, ...], said: str) -> None:
    done = asked(tools, *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_socket_that_is_there_is_not_taken(tools: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "used").touch()
    done = asked(tools, "serve", "there", "--socket", str(tmp_path / "used"))
    assert (done.returncode, "is there already" in done.stderr) == (2, True)
