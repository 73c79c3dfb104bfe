"""What the runner keeps for itself is out of a run's reach: its key, policy, journal, and other runs' directories."""

from __future__ import annotations

import json
import sys

import pytest

from bridge.runner.maintenance.setup import SetupOptions, steps
from bridge.runner.state.folder import StateFolder
from bridge.trust import runner_key as keys
from tests.integration.executor.inside import told

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are ways out of a Linux sandbox")

READ = """
import json, os, sys
def attempt(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read().hex()
    except OSError:
        return "refused"
def write(path):
    try:
        open(path, "a").write("x")
        return "written"
    except OSError:
        return "refused"
"""


@pytest.fixture
def runner(tmp_path) -> StateFolder:
    """A runner's folders as `setup` makes them, beside the runs."""
    state = StateFolder(tmp_path / "state")
    for step in steps(SetupOptions(tmp_path / "config" / "policy.toml", state, "desk", keygen=keys.generate)):
        if step.act is not None:
            step.act()
    state.database.write_bytes(b"SQLite format 3")
    return state


@pytest.mark.parametrize("code", ["host", "request"])
def test_keys_policy_and_journal_can_be_neither_read_nor_written(caged, token, runner, tmp_path, code):
    secret = [tmp_path / "config" / "policy.toml", runner.root / keys.KEY_FILE, runner.database, runner.root]
    assert all(path.exists() for path in secret)
    before = {path: path.read_bytes() for path in secret if path.is_file()}
    execution = caged.run(
        f"""{READ}
paths = {[str(path) for path in secret]!r}
links = ["link%d" % place for place, path in enumerate(paths)]
for link, path in zip(links, paths):
    os.symlink(path, link)
print(json.dumps({{"read": [attempt(path) for path in paths + links], "write": [write(path) for path in paths[:3]],
                   "by root": [attempt("/proc/self/root" + path) for path in paths]}}))  # {token}
""",
        code=code,
    )

    assert {text for texts in told(execution).values() for text in texts} == {"refused"}
    assert {path: path.read_bytes() for path in before} == before


def test_a_link_to_the_key_in_the_report_folder_brings_nothing_out(caged, token, runner):
    key = str(runner.root / keys.KEY_FILE)
    execution = caged.run(
        f"import os\nos.symlink({key!r}, os.environ['KAKEYA_OUT'] + '/report.json')\nprint('done')  # {token}"
    )

    assert execution.reports == {}
    assert b"left behind" in execution.log


def test_ssh_keys_agent_and_tokens_of_the_runners_user_are_not_there(caged, token, tmp_path, monkeypatch):
    home = tmp_path / "home-of-the-runner"
    (home / ".ssh").mkdir(parents=True)
    for name in (".ssh/id_ed25519", ".netrc", ".git-credentials"):
        (home / name).write_text(f"secret-{token}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(home / "agent.sock"))
    monkeypatch.setenv("GITHUB_TOKEN", f"secret-{token}")
    execution = caged.run(
        f"""{READ}
names = (".ssh", ".ssh/id_ed25519", ".netrc", ".git-credentials")
print(json.dumps({{"own": [attempt(os.path.expanduser("~/" + name)) for name in names],
                   "root": [attempt(os.path.expanduser("~root/" + name)) for name in names],
                   "runner": [attempt({str(home)!r} + "/" + name) for name in names],
                   "variables": [os.environ.get(name, "refused") for name in ("SSH_AUTH_SOCK", "GITHUB_TOKEN")]}}))
# {token}
"""
    )

    assert {text for texts in told(execution).values() for text in texts} == {"refused"}


def test_another_runs_directory_is_not_there_before_during_or_after(caged, token, tmp_path):
    other = tmp_path / "another-run"
    for name in ("work", "out", "home", "tmp"):
        (other / name).mkdir(parents=True)
        (other / name / "file").write_text("of another run")
        (other / name).chmod(0o777)
    caged.run(f"open('mine', 'w').write('x')  # {token}")
    earlier = caged.directory
    paths = [str(other), *(str(other / name / "file") for name in ("work", "out", "home", "tmp"))]
    paths += [str(earlier.work / "mine"), str(earlier.root), str(tmp_path)]
    execution = caged.run(
        f"""{READ}
print(json.dumps([attempt(path) for path in {paths!r}]))  # {token}
for path in {paths!r}:
    write(path)
    write(path + "/more")
"""
    )

    answers = json.loads(execution.log.splitlines()[0])
    # The folders above its own are there as empty mount points: nothing of them shows.
    assert {str(text) for text in answers} <= {"refused", str([caged.directory.root.name])}
    assert answers[1:5] == ["refused"] * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "another-run", "run-1", "run-1.handle", "run-2", "run-2.handle",
    ]  # fmt: skip
    assert sorted(path.name for path in other.rglob("*")) == ["file"] * 4 + ["home", "out", "tmp", "work"]
    assert (earlier.work / "mine").read_text() == "x"
