"""Keys of runners and owners in a real ssh-agent: the private half is in no file that they read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError
from bridge.trust import runner_key
from bridge.trust.root import RootContent, fingerprint, read_root, write_root
from bridge.trust.signing_key import make_key, open_key, public_text
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import bus_record
from tests.fakes.ssh_keys import Key
from tests.support.waiting import until
from tests.unit.bridge.publish.test_attestation import tree, verify_attestation

pytestmark = pytest.mark.needs("ssh-agent", "ssh-keygen")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the public half of a key that only an agent holds."""
    tmp_path.chmod(0o700)
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    key = make_key(tmp_path / "key", "openssh")
    public = tmp_path / "key.pub"
    public.write_text(f"{public_text(key)} a comment\n")
    add = ["ssh-add", "-q", str(tmp_path / "key")]
    until(lambda: subprocess.run(add, capture_output=True, check=False).returncode == 0, why="the agent took no key")
    (tmp_path / "key").unlink()
    yield public
    process.terminate()
    process.wait()


def test_a_runner_signs_its_results_with_an_agent_s_key(agent: Path, tmp_path: Path) -> None:
    record = runner_key.use_agent(tmp_path / "state", "mini", agent)
    assert not (tmp_path / "state" / runner_key.KEY_FILE).exists()
    assert runner_key.has_key(tmp_path / "state")
    assert verify_attestation(tree(tmp_path / "state"), [record.public]).key == record.public
    assert Key(agent.with_suffix("")).fingerprint == fingerprint(record.public)


def test_an_owner_signs_a_root_with_an_agent_s_key(agent: Path) -> None:
    clock = FakeClock()
    root = read_root(write_root(RootContent(bus_record(clock)), open_key(agent), clock.now()))
    assert root.owner == Key(agent.with_suffix("")).fingerprint


def test_an_agent_that_is_away_or_has_another_key_is_said(agent: Path, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other", "openssh")
    (tmp_path / "other.pub").write_text(f"{public_text(other)}\n")
    with pytest.raises(InfrastructureError, match="does not sign with this key"):
        runner_key.use_agent(tmp_path / "state", "mini", tmp_path / "other.pub")
    os.environ["SSH_AUTH_SOCK"] = str(tmp_path / "nobody")
    with pytest.raises(InfrastructureError, match="does not answer"):
        open_key(agent).sign(b"x")
