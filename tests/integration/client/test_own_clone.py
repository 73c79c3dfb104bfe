"""What is read of the user's own clone: its state as git itself tells it, and nothing where git reads nothing."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.cli.mac.program import Surroundings, main
from bridge.client.clone.git_door import DirtyState, dirty_state, find_request_branch
from bridge.client.clone.repository import find_repository
from bridge.errors import UsageError
from bridge.records.request import Request
from bridge.system.clock import SystemClock
from tests.drift import ROOT
from tests.fakes.clone import Clone
from tests.fakes.git_servers import bare, git
from tests.fakes.requester import Ran
from tests.fakes.scripted_host import ScriptedHost


@pytest.fixture
def clone(tmp_path):
    made = Clone(tmp_path)
    made.commit({"a.txt": "one\n", "b.txt": "two\n", "dir/c.txt": "three\n"})
    return made


def mac(clone: Clone, *words: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    own = {f"KAKEYA_{name}_DIR": str(clone.root / name.lower()) for name in ("DATA", "CONFIG")}
    code = main(list(words), Surroundings(out, err, own, clone.top, SystemClock()))
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("setting", ["index.version=4", "core.splitIndex=true", "core.untrackedCache=true"])
def test_the_state_of_a_work_tree_is_git_s_own_whatever_its_index(clone, setting):
    clone.git("config", *setting.split("="))
    clone.git("update-index", "--force-write-index")
    index = clone.top / ".git" / "index"
    (clone.top / "a.txt").write_text("other\n")
    clone.git("mv", "b.txt", "renamed.txt")
    (clone.top / "dir" / "new").mkdir()
    (clone.top / "dir" / "new" / "d.txt").write_text("four\n")
    before = index.read_bytes()
    assert dirty_state(clone.top) == DirtyState(("a.txt", "renamed.txt"), 1)
    assert index.read_bytes() == before


def test_configuration_that_variables_hold_counts_for_the_state_of_a_work_tree(clone, monkeypatch):
    (clone.top / "a.txt").chmod(0o755)
    assert dirty_state(clone.top).changed == ("a.txt",)
    for name, text in (("COUNT", "1"), ("KEY_0", "core.fileMode"), ("VALUE_0", "false")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", text)
    assert dirty_state(clone.top).changed == ()


def test_what_git_tells_its_hooks_of_another_clone_counts_for_none_but_that(clone, tmp_path, monkeypatch):
    (tmp_path / "second").mkdir()
    second = Clone(tmp_path / "second")
    second.commit({"only-there.txt": "x\n"})
    (clone.top / "a.txt").write_text("other\n")
    (clone.top / "new.txt").write_text("new\n")
    own = {"GIT_DIR": ".git", "GIT_WORK_TREE": ".", "GIT_INDEX_FILE": ".git/index", "GIT_PREFIX": ""}
    for name, text in own.items():
        monkeypatch.setenv(name, str(second.top / text) if text else "")
    assert dirty_state(clone.top) == DirtyState(("a.txt",), 1)
    assert os.environ["GIT_INDEX_FILE"] == str(second.top / ".git" / "index")


def test_a_repository_without_a_commit_has_a_state(tmp_path):
    top = tmp_path / "clone"
    top.mkdir()
    empty = Clone(tmp_path)
    empty.git("init", "-q")
    (top / "x").write_text("x")
    assert dirty_state(top) == DirtyState((), 1)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take UTF-8 only")
def test_staged_changes_are_told_beside_a_tag_whose_name_is_no_utf_8(clone):
    subprocess.run(["git", "tag", b"caf\xe9"], cwd=clone.top, check=True, timeout=240)
    clone.git("pack-refs", "--all")
    (clone.top / "a.txt").write_text("other\n")
    clone.git("add", "a.txt")
    assert dirty_state(clone.top).changed == ("a.txt",)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take UTF-8 only")
def test_files_whose_names_are_no_utf_8_count_as_any_other(clone):
    (clone.top / "caf\udce9.txt").write_text("one\n")
    clone.git("add", "-A")
    clone.git("commit", "-q", "-m", "Latin-1")
    (clone.top / "caf\udce9.txt").write_text("other\n")
    (clone.top / "data \udcfc.csv").write_text("1,2\n")
    (clone.top / 'a "quoted" \u00e4.csv').write_text("1,2\n")
    clone.git("config", "core.quotePath", "false")
    assert dirty_state(clone.top) == DirtyState(("caf\udce9.txt",), 2)
    clone.git("add", "-u")
    assert dirty_state(clone.top) == DirtyState(("caf\udce9.txt",), 2)


def test_files_that_are_not_merged_are_counted(clone):
    clone.git("checkout", "-q", "-b", "side")
    clone.commit({"a.txt": "side\n"})
    clone.git("checkout", "-q", "main")
    clone.commit({"a.txt": "main\n"})
    with pytest.raises(Exception, match="merge"):
        clone.git("merge", "side")
    assert dirty_state(clone.top).unmerged == 1
    clone.git("branch", "mac-bridge/quick-01j0000000000000000000000a")
    assert find_request_branch(clone.top, "01j").run_id == "01j0000000000000000000000a"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_a_clone_of_another_user_is_told_from_one_without_remotes(clone, tmp_path):
    clone.git("remote", "add", "origin", str(tmp_path / "bus.git"))
    (clone.top / "kakeya.toml").write_text('schema = 1\nroute = "origin"\n')
    for folder in (clone.top, clone.top / ".git"):
        os.chown(folder, 12345, 12345)
    ran = mac(clone, "ls")
    assert ran.code == 2
    assert "dubious ownership" in ran.err
    assert "safe.directory" in ran.err
    with pytest.raises(UsageError, match="dubious ownership"):
        dirty_state(clone.top)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_bus_of_another_user_is_used_once_the_printed_command_was_typed(clone, host, monkeypatch, scheme):
    bus = Path(host.bus.route)
    os.chown(bus, 12345, 12345)
    words = ("run", "pytest-path", "-p", "path=dir", "--bus", f"{scheme}{bus}")
    refused = mac(clone, *words)
    if "dubious ownership" not in refused.err and refused.code == 0:
        pytest.skip("this git serves a folder of any user")
    assert refused.code == 3, refused.err
    command = f"git config --global --add safe.directory {bus}"
    assert refused.err.splitlines()[-1].endswith(command), refused.err
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(clone.root / "gitconfig"))
    subprocess.run(command.split(), check=True, timeout=240)
    sent = mac(clone, *words)
    assert sent.code == 0, sent.err
    assert list((bus / "refs" / "heads").rglob("pytest-path-*"))


@pytest.mark.parametrize("path", ["./nothing", "../nothing", "/nothing/here", "./a.txt"])
def test_a_path_without_a_result_is_said_to_be_none_and_not_looked_for_among_branches(clone, path):
    ran = mac(clone, "verify", path)
    assert ran.code == 2
    state = "is no result" if path == "./a.txt" else "is not there"
    assert f"{path} {state}" in ran.err
    assert "branch" not in ran.err


@pytest.fixture
def host(tmp_path):
    """A bus whose runner takes code of a request."""
    bus = open_bus(str(bare(tmp_path / "bus.git")), repository=None, state=tmp_path / "runner", clock=SystemClock())
    bus.create(new_record(SystemClock(), wake="poll", local=True))
    runner = ScriptedHost(bus, SystemClock())
    runner.beat(presets=("pytest-path",), interval_s=1200.0)
    return runner


ASK = ("run", "pytest-path", "-p", "path=dir", "--bus")


def sent_request(host: ScriptedHost, run_id: str) -> Request:
    return Request.parse(host.bus.read_request(host.ref(run_id)).data)


@pytest.mark.parametrize("name", ["two words", "a:b", "quote\"'$HOME", "-dash", "new\nline", "end\n", "\u2028\x85"])
@pytest.mark.parametrize("kind", [pytest.param("clone", marks=pytest.mark.ci), "work tree"])
def test_code_is_sent_from_a_folder_of_any_name(clone, host, tmp_path, name, kind):
    there = Clone(clone.root)
    there.top = tmp_path / name
    if kind == "clone":
        clone.top.rename(there.top)
    else:
        clone.git("worktree", "add", "-q", "-b", "side", str(there.top))
    (there.top / "a.txt").write_text("changed\n")
    ran = mac(there, *ASK, str(tmp_path / "bus.git"), "--dirty")
    assert ran.code == 0, ran.err
    sent = host.ref(ran.out.strip()).oid
    assert git("cat-file", "blob", f"{sent}:a.txt", cwd=tmp_path / "bus.git") == "changed"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_below_stderr_costs_the_talk_and_not_the_answer(clone, host, tmp_path):
    argv = [sys.executable, "-m", "bridge.cli.mac.main", *ASK, str(tmp_path / "bus.git")]
    env = {**clone.env, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, cwd=clone.top, env=env, stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert done.returncode == 0
    assert sent_request(host, done.stdout.strip()).preset == "pytest-path"


@pytest.mark.parametrize("layout", ["bare", "bare in a folder"])
def test_a_commit_is_sent_from_a_repository_without_a_work_tree(clone, host, tmp_path, layout):
    top = tmp_path / "layout"
    inner = top if layout == "bare" else top / ".bare"
    git("clone", "--quiet", "--bare", str(clone.top), str(inner))
    if inner != top:
        (top / ".git").write_text("gitdir: ./.bare\n")
    there = Clone(clone.root)
    there.top = top
    ran = mac(there, *ASK, str(tmp_path / "bus.git"))
    assert ran.code == 0, ran.err
    assert sent_request(host, ran.out.strip()).workload.commit == git("rev-parse", "main", cwd=clone.top)
    refused = mac(there, *ASK, str(tmp_path / "bus.git"), "--dirty")
    assert (refused.code, "is a bare repository" in refused.err) == (2, True), refused.err


def test_what_looks_like_a_bare_repository_inside_a_work_tree_is_a_folder_of_it(clone):
    inner = clone.top / "dir" / "planted"
    git("init", "--quiet", "--bare", str(inner))
    (inner / "kakeya.toml").write_text('schema = 1\nroute = "https://elsewhere.example/bus.git"\n')
    assert find_repository(inner).top == clone.top


def test_a_clone_whose_git_folder_is_named_by_a_variable_is_told_how_its_code_is_sent(
    clone, host, tmp_path, monkeypatch
):
    (tmp_path / "empty").mkdir()
    there = Clone(clone.root)
    there.top = tmp_path / "empty"
    monkeypatch.setenv("GIT_DIR", str(clone.top / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(there.top))
    ran = mac(there, *ASK, str(tmp_path / "bus.git"))
    assert ran.code == 2
    assert f"GIT_DIR names '{clone.top}/.git'" in " ".join(ran.err.split())


def test_conflict_markers_are_sent_with_a_word(clone, host, tmp_path):
    clone.git("checkout", "-q", "-b", "side")
    clone.commit({"a.txt": "side\n"})
    clone.git("checkout", "-q", "main")
    clone.commit({"a.txt": "main\n"})
    with pytest.raises(Exception, match="merge"):
        clone.git("merge", "side")
    ran = mac(clone, *ASK, str(tmp_path / "bus.git"), "--dirty")
    assert ran.code == 0, ran.err
    assert "1 files are in the middle of a merge: their conflict markers are sent as they are" in " ".join(
        ran.err.split()
    )


@pytest.mark.parametrize(("wake", "skips"), [("poll", True), ("actions", False)])
def test_a_request_starts_no_ci_but_where_that_wakes_the_runner(clone, tmp_path, wake, skips):
    bus = open_bus(str(bare(tmp_path / "bus.git")), repository=None, state=tmp_path / "runner", clock=SystemClock())
    bus.create(new_record(SystemClock(), wake=wake, local=True))
    ran = mac(clone, *ASK, str(tmp_path / "bus.git"), "--queue")
    assert ran.code == 0, ran.err
    subject = git("for-each-ref", "--format=%(subject)", "refs/heads", cwd=tmp_path / "bus.git")
    assert subject == f"request {ran.out.strip()}{' [skip ci]' if skips else ''}"
