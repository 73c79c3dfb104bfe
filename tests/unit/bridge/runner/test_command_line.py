"""The owner's command starts fast and says what it can do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.cli.host.control import stop_runner
from bridge.cli.host.main import main
from bridge.runner.policy.file import written_name
from bridge.runner.state.folder import NO_STATE_REMEDY, RUNS_TOO, StateFolder


@pytest.mark.parametrize("words", [["--help"], ["help", "all"], ["serve", "--help"], ["trust"]])
def test_help_imports_nothing_heavy(words):
    code = (
        "import sys\n"
        "from bridge.cli.host.main import main\n"
        f"code = main({words!r})\n"
        "heavy = {'pydantic', 'git', 'numpy', 'psutil', 'torch', 'mlx', 'jsonschema', 'platformdirs'}\n"
        "print(sorted(heavy & set(sys.modules)), code, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stderr.strip() == "[] 0"
    assert done.stdout


@pytest.mark.enable_socket  # the trial of a sandbox listens on loopback
def test_the_doctor_names_a_state_folder_that_cannot_be_made_beside_all_else(tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    state, bus = tmp_path / "file" / "state", tmp_path / "nowhere.git"
    words = ["--state", str(state), "--policy", str(tmp_path / "policy.toml"), "--bus", str(bus)]
    assert main(["doctor", "--json", *words]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert (checks["state"]["level"], checks["state"]["remedy"]) == ("fail", NO_STATE_REMEDY)
    assert checks["state"]["text"] == f"{state}: Not a directory"
    assert checks["bus"]["level"] == "fail"
    assert main(["pause", "--state", str(state)]) == 3
    assert NO_STATE_REMEDY in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_doctor_leaves_nothing_of_roots_in_the_folders_of_another_user(tmp_path, capsys):
    policy, state = tmp_path / "policy.toml", tmp_path / "state"
    policy.write_text("schema = 1\nname = 'mini-3'\n")
    policy.chmod(0o600)
    os.chown(policy, 65534, -1)
    places = ["--policy", str(policy), "--state", str(state)]
    assert main(["doctor", *places, "--bus", str(tmp_path / "nowhere.git")]) == 2
    err = capsys.readouterr().err
    assert "belongs to uid 65534" in err
    assert "sudo -u '#65534' kakeya-runner doctor" in err
    assert not state.exists()


def order(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Give an order as the owner whose home this is, without an option that names a folder."""
    places = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
    argv = [sys.executable, "-m", "bridge.cli.host.main", *words]
    return subprocess.run(argv, env={**os.environ, **places}, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.parametrize(
    "slip", ["colour = 'red'\n", "slots = \n", "[presets]\nallow = ['*'\n", "[env]\nname = 'other'\nname = 'other'\n"]
)
def test_a_runner_whose_policy_was_broken_still_hears_its_owner(tmp_path: Path, slip: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("schema = 1\nname = 'mini-3'\n")
    policy.chmod(0o600)
    assert order(tmp_path, "status", "--policy", str(policy)).returncode == 0
    policy.write_text(f"schema = 1\nname = 'mini-3'\n{slip}")
    assert order(tmp_path, "policy", "check", "--policy", str(policy)).returncode != 0
    assert order(tmp_path, "pause", "--policy", str(policy)).returncode == 0
    assert [path.parent.name for path in tmp_path.rglob("pause")] == ["mini-3"]


@pytest.mark.parametrize("name", ["../../elsewhere", "", "UPPER"])
def test_a_broken_policy_names_no_folder_by_what_is_no_name(tmp_path: Path, name: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f"schema = 1\nname = {name!r}\n")
    assert written_name(policy) is None
    policy.write_text(f"name = {name!r}\nslots =\n")
    assert written_name(policy) is None
    assert written_name(tmp_path / "not-there.toml") is None


@pytest.mark.parametrize("runs_too", [True, False])
def test_an_order_to_stop_can_be_read_by_the_runners_user_whoever_gave_it(tmp_path: Path, runs_too: bool) -> None:
    """As root with a mask of its own, which would leave a file that the runner passes over."""
    state = StateFolder(tmp_path / "state")
    state.create()
    mask = os.umask(0o077)
    try:
        stop_runner(state, runs_too=runs_too)
    finally:
        os.umask(mask)
    assert state.stop.read_text("ascii") == (RUNS_TOO if runs_too else "")
    assert state.stop.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("words", [["pause"], ["resume"], ["drain"], ["drain", "--now"], ["stop"], ["stop", "--runs"]])
def test_an_order_that_no_runner_can_hear_is_refused(tmp_path: Path, words: list[str]) -> None:
    done = order(tmp_path, *words, "--policy", str(tmp_path / "mistyped.toml"))
    assert done.returncode == 2
    assert "no runner has its state in" in done.stderr
    assert "own --policy FILE or --state DIR" in done.stderr
    assert not (tmp_path / "state").exists()
