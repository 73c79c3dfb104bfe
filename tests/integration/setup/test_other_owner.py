"""`setup --create-bus` beside a policy that pins another bus's owner says so first, and makes nothing."""

from __future__ import annotations

import subprocess
import tomllib

import pytest

from bridge.cli.host.main import main


@pytest.fixture
def setup(tmp_path, capsys, monkeypatch):
    """Return a function that sets a runner up for the bus of a name; gives code and stderr."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("KAKEYA_OWNER_DIR", str(tmp_path / "owner"))
    for name in ("old", "new"):
        subprocess.run(["git", "init", "-q", "--bare", tmp_path / f"{name}.git"], check=True, timeout=60)

    def run(bus: str, part: str = "mine"):
        places = ["--policy", str(tmp_path / part / "policy.toml"), "--state", str(tmp_path / part / "state")]
        code = main(["setup", "--bus", str(tmp_path / f"{bus}.git"), "--create-bus", "--name", "desk", *places])
        return code, capsys.readouterr().err

    return run


def refs(folder):
    return subprocess.run(["git", "-C", folder, "for-each-ref"], check=True, timeout=60, capture_output=True).stdout


def test_a_policy_that_pins_another_owner_stops_setup_before_it_makes_anything(setup, tmp_path):
    assert setup("old")[0] == 0
    policy = tmp_path / "mine" / "policy.toml"
    pinned = tomllib.loads(policy.read_text())["root_key"]
    assert setup("old")[0] == 0
    before = refs(tmp_path / "old.git")
    code, err = setup("new")
    assert code == 2
    assert f"{policy} pins the owner of another bus, root_key = '{pinned}': a new bus has an owner's key of its" in err
    assert f"take root_key and bus out of {policy}" in err
    assert refs(tmp_path / "new.git") == b""
    assert setup("new", "other")[0] == 0
    code, err = setup("new")
    assert (code, "pins the owner of another bus" in err) == (2, True)
    assert refs(tmp_path / "old.git") == before
