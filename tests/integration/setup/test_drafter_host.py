"""The set-up of a drafter's host, with a stand-in for ssh that runs everything here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import until

SCRIPT = Path(__file__).resolve().parents[3] / "runner-setup" / "drafter_host.sh"
HASH = "ab" * 32
START_S = 0.3


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


def fewer_tools(tools: dict[str, str]) -> Path:
    """Return a folder of the programs that the script needs for a check, without git."""
    folder = Path(tools["HOME"]).parent / "bin"
    folder.mkdir()
    for name in ("basename", "bash", "cat", "dirname", "head", "mktemp", "perl", "rm", "sed", "sh", "sort"):
        (folder / name).symlink_to(shutil.which(name) or "")
    return folder


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


def test_the_round_trip_is_a_bytes_way_and_not_a_commands_start(tools: dict[str, str]) -> None:
    slow = Path(tools["SSH"])
    slow.write_text(slow.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\nsleep {START_S}\n"))
    done = asked(tools, "check", "there")
    assert done.returncode == 0, done.stderr
    link = re.match(r"link      there: round trip ([0-9.]+) ms", done.stdout)
    assert link is not None
    assert float(link[1]) < START_S * 1e3


@pytest.mark.parametrize(("says", "code"), [(HASH, 0), ("cd" * 32, 2)])
def test_a_host_that_would_serve_another_drafter_is_found(tools: dict[str, str], says: str, code: int) -> None:
    installed(tools, says)
    done = asked(tools, "check", "there")
    assert done.returncode == code
    assert ("the same" in done.stdout) == (code == 0)
    assert ("another drafter" in done.stderr) == (code != 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "usage"),
        (("check",), "no HOST"),
        (("check", "-oProxyCommand=x"), "no HOST"),
        (("check", "there", "--target"), "--target lacks its value"),
        (("check", "there", "--port", "0.0.0.0"), "unknown option --port"),
        (("check", "there", "--target-ms", "forty"), "--target-ms forty: expected a number"),
        (("install", "there", "--extras", "torch]'; touch owned; '"), "expected names separated by commas"),
        (("serve", "there", "--socket", "/no/such/folder/s"), "no folder for /no/such/folder/s"),
        (("serve", "there", "--socket", "./a:b"), "ssh -L reads a colon as its own"),
        (("serve", "there", "--socket", "./s"), "nothing is installed on there"),
    ],
)
def test_a_wrong_call_does_nothing(tools: dict[str, str], words: tuple[str, ...], message: str) -> None:
    done = asked(tools, *words)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ENGINE", "/no/such/engine", "/no/such/engine is not installed here"),
        ("SSH", "/no/such/ssh", "/no/such/ssh is not installed here"),
        ("REMOTE_DIR", "a b", "REMOTE_DIR=a b: expected letters"),
        ("PORT", "70000", "PORT=70000: expected 1 to 65535"),
    ],
)
def test_what_is_missing_here_is_found_before_the_link_is_measured(
    tools: dict[str, str], name: str, value: str, message: str
) -> None:
    done = asked(tools | {name: value}, "check", "there")
    assert (done.returncode, done.stdout) == (2, "")
    first, remedy = done.stderr.splitlines()
    assert message in first
    assert remedy.startswith("  ")


def test_an_installation_that_cannot_serve_is_not_called_missing_and_is_replaced(tools: dict[str, str]) -> None:
    installed(tools, HASH)
    Path(tools["HOME"], "kakeya-drafter/.venv/bin/kakeya-engine").write_text("#!/bin/sh\necho no models >&2; exit 3\n")
    done = asked(tools, "check", "there")
    assert done.returncode == 2
    assert "no models" in done.stderr
    assert "it agrees on nothing: it cannot serve this drafter" in done.stderr
    # What follows the check needs git and an environment; that it is not refused by it is what is shown.
    replaced = asked(tools | {"PATH": str(fewer_tools(tools))}, "install", "there")
    assert "another drafter, replaced by this clone" in replaced.stdout
    assert "git is not installed here" in replaced.stderr


def test_a_socket_that_is_there_is_not_taken(tools: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "used").touch()
    done = asked(tools, "serve", "there", "--socket", str(tmp_path / "used"))
    assert (done.returncode, "is there already" in done.stderr) == (2, True)


def living(token: str) -> list[str]:
    """Return the command lines of living processes whose environment or words hold a text."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            words, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and token.encode() in words + variables and int(folder.name) != os.getpid():
            lines.append(words.replace(b"\0", b" ").decode())
    return lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_serve_ends_all_that_it_started(tools: dict[str, str], tmp_path: Path, number: int) -> None:
    installed(tools, HASH)
    program = Path(tools["HOME"], "kakeya-drafter/.venv/bin/kakeya-engine")
    program.write_text('#!/bin/sh\ntouch "$HOME/serving"\ncat > /dev/null\ntouch "$HOME/ended"\n')
    command = ["bash", str(SCRIPT), "serve", "there", "--socket", str(tmp_path / "s")]
    # In a group of its own, as in a terminal: an interrupt comes to all of a group, a kill to one process.
    with subprocess.Popen(command, env=tools, start_new_session=True, stdout=subprocess.DEVNULL) as serve:
        until(Path(tools["HOME"], "serving").exists)
        assert len(living(str(tmp_path))) > 1
        serve.send_signal(number)
        assert serve.wait(240) != 0
        until(lambda: living(str(tmp_path)) == [])
    assert Path(tools["HOME"], "ended").exists()


def test_serve_ends_when_its_connection_does(tools: dict[str, str], tmp_path: Path) -> None:
    installed(tools, HASH)
    Path(tools["HOME"], "kakeya-drafter/.venv/bin/kakeya-engine").write_text("#!/bin/sh\nexit 7\n")
    done = asked(tools, "serve", "there", "--socket", str(tmp_path / "s"))
    assert done.returncode == 7
    assert living(str(tmp_path)) == []
