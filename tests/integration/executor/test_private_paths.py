"""An allow-list never shows a run the runner's own files, and what it shows holds no socket and no credential."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.errors import SandboxUnavailableError, UsageError
from bridge.executor.interface import HostPaths, RunKind
from bridge.executor.local import LocalExecutor
from bridge.executor.sandbox import bubblewrap
from bridge.executor.sandbox.confinement import Confinement
from bridge.executor.trial import SandboxTrial, try_sandbox
from bridge.runner.maintenance.doctor import DoctorContext, examine
from bridge.runner.policy.allow_lists import host_paths
from bridge.runner.policy.check import problems
from bridge.runner.policy.file import load_policy
from bridge.runner.service.serve import runner_on
from bridge.runner.state.folder import StateFolder
from bridge.runner.state.log import new_log
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
from tests.integration.executor.inside import TRY, refused, told

CLOCK = SystemClock()
SECRET = "token-of-the-owner"
FILES = (
    ".git-credentials",
    ".netrc",
    ".docker/config.json",
    ".ssh/known",
    ".aws/credentials",
    ".config/gcloud/key.json",
    "deep/er/pip.conf",
    "huggingface/token",
    "model/id_ed25519",
    "model/id_ed25519_sk",
    ".cargo/credentials.toml",
    "application_default_credentials.json",
    "kaggle/kaggle.json",
    ".my.cnf",
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are about a Linux sandbox")


@pytest.fixture
def models(tmp_path) -> Path:
    folder = tmp_path / "models"
    for name in (*FILES, "model/config.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(SECRET)
    return folder


def write_policy(folder: Path, lists: str) -> Path:
    folder.chmod(0o700)
    path = folder / "policy.toml"
    path.write_text(f'schema = 1\nname = "desk"\ninterpreter = "{sys.executable}"\n{lists}')
    path.chmod(0o600)
    return path


def test_a_socket_in_a_declared_folder_cannot_be_reached(caged, token, models, request):
    path = models / "deep" / "daemon.sock"
    server = socket.socket(socket.AF_UNIX)
    request.addfinalizer(server.close)
    server.bind(str(path))
    server.listen()
    path.chmod(0o666)
    program = f"""{TRY}
import socket
def connect():
    with socket.socket(socket.AF_UNIX) as client:
        client.connect({str(path)!r})
tell(connect=attempt(connect), read=open({str(models / "model/config.json")!r}).read())  # {token}
"""
    execution = caged.run(program, sandbox=caged.sandbox(read_only=(str(models),)))

    assert told(execution) == {"connect": "refused", "read": SECRET}


def test_credentials_in_a_declared_folder_are_empty(caged, token, models):
    program = f"""{TRY}
def read(name):
    if open(os.path.join({str(models)!r}, name)).read() == "":
        raise PermissionError("empty")
tell(**{{name: attempt(read, name) for name in {FILES!r}}})  # {token}
"""
    execution = caged.run(program, sandbox=caged.sandbox(read_only=(str(models),)))

    refused(execution, *FILES)


def test_the_package_settings_beside_the_interpreter_are_masked(caged, token, tmp_path):
    prefix = tmp_path / "venv"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (prefix / "pyvenv.cfg").write_text(f"home = {Path(os.path.realpath(sys.executable)).parent}\n")
    (prefix / "pip.conf").write_text(SECRET)
    prefix.chmod(0o755)
    program = f"print(open({str(prefix / 'pip.conf')!r}).read())  # {token}"
    execution = caged.run(argv=[(str(prefix / "bin" / "python"), "-I", "-S", "-c", program)])

    assert execution.program_exit == 0, execution.log
    assert SECRET.encode() not in execution.log


@pytest.mark.parametrize("listed", ["/", "state", "state/runner.key", "link"])
def test_a_run_whose_list_holds_the_runners_own_files_does_not_start(tmp_path, need_sandbox, listed):
    need_sandbox("sandboxed")
    state = tmp_path / "state"
    state.mkdir()
    (state / "runner.key").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path)
    jobs = Jobs(LocalExecutor(CLOCK, HostPaths(private=(str(state / "runner.key"), str(state)))), tmp_path, "sandboxed")
    path = str(tmp_path / listed)
    with pytest.raises(SandboxUnavailableError, match="a run may not read") as refusal:
        jobs.run("print('never')", sandbox=jobs.sandbox(read_only=(path,)))

    assert path in refusal.value.message
    assert jobs.started == []


@pytest.mark.parametrize("key", ["model_roots", "sandbox.read_only", "sandbox.devices", "target"])
@pytest.mark.parametrize("where", ["/", "own", "home"])
def test_a_policy_whose_lists_hold_private_paths_is_refused_by_name(tmp_path, key, where):
    listed = {"/": "/", "own": str(tmp_path), "home": str(Path.home())}[where]
    name = key.rpartition(".")[2]
    value = f'"{listed}"' if key == "target" else f'["{listed}"]'
    path = write_policy(tmp_path, ("[sandbox]\n" if "." in key else "") + f"{name} = {value}\n")
    with pytest.raises(UsageError, match=f"policy, {key}: {listed} would show runs /"):
        load_policy(path)

    assert [(finding.name, finding.level) for finding in problems(path) if "would show runs" in finding.text] == [
        (key, "fail")
    ]


def test_a_runner_whose_lists_hold_its_state_folder_does_not_start(tmp_path):
    state = StateFolder(tmp_path / "elsewhere" / "state")
    (tmp_path / "own").mkdir()
    policy = load_policy(write_policy(tmp_path / "own", f'model_roots = ["{tmp_path / "elsewhere"}"]\n'))
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bus.git"], check=True)
    bus = open_bus(str(tmp_path / "bus.git"), repository=None, state=tmp_path / "control", clock=CLOCK)
    bus.create(new_record(CLOCK, wake="poll", local=True))
    starting = runner_on(bus, policy, state, clock=CLOCK, stopping=threading.Event(), log=new_log(sys.stderr))
    with pytest.raises(UsageError, match=r"model_roots: .*elsewhere would show runs .*state"), starting:
        pass


def test_a_folder_of_models_below_home_may_be_listed(tmp_path):
    policy = load_policy(write_policy(tmp_path, f'model_roots = ["{Path.home() / "models"}"]\n'))
    assert policy.model_roots == (str(Path.home() / "models"),)


class Holed(LocalExecutor):
    """The executor of a host whose sandbox has a hole planted in it."""

    def __init__(self, paths: HostPaths, hole, *, as_runner: bool) -> None:
        super().__init__(CLOCK, paths)
        self._hole = hole
        self._as_runner = as_runner

    def try_out(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        def holed(spec, directory) -> Confinement:
            box = bubblewrap.enclose(spec, directory)
            if not self._as_runner:
                return self._hole(box)
            for folder in (directory.work, directory.out, directory.home, directory.tmp):
                os.chown(folder, os.getuid(), os.getgid())
            return self._hole(replace(box, drop=(), uid=os.getuid()))

        return try_sandbox(CLOCK, uid, holed, self._paths, kind)


@pytest.mark.parametrize("hole", ["the key", "the state", "the home", "HOME", "no mask", "user 0"])
def test_doctor_finds_a_planted_hole(tmp_path, need_sandbox, models, monkeypatch, hole):
    need_sandbox("sandboxed")
    if hole == "HOME":  # names another folder than the user database
        (tmp_path / "home").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    state = StateFolder(tmp_path / "state")
    state.create()
    (state.root / "runner.key").write_text("secret")
    path = write_policy(tmp_path, f'[sandbox]\nmode = "required"\nread_only = ["{models}"]\n')
    shown = {
        "the key": state.root / "runner.key",
        "the state": state.root,
        "the home": pwd.getpwuid(os.getuid()).pw_dir,
        "HOME": tmp_path / "home",
    }.get(hole)

    def dig(box):
        extra = (str(shown),) if shown is not None else ()
        masked = {} if hole == "no mask" else box.allow.masked
        return replace(box, allow=replace(box.allow, declared=(*box.allow.declared, *extra), masked=masked))

    (state.root / "runner.key").chmod(0o644)
    # Modes close the folders to anybody else: there the hole shows only to a run that is the runner's own user.
    folders = ("the state", "the home", "HOME")
    own = {*folders, "user 0"}
    executor = Holed(host_paths(load_policy(path), state.root), dig, as_runner=hole in own)
    findings = list(examine(DoctorContext(path, state, executor, CLOCK, None)))
    open_ways = {
        finding.text.partition("a run can ")[2]
        for finding in findings
        if finding.name == "escape" and finding.level == "fail"
    }

    masks = {"read a credential below an allowed folder", "connect to a socket below an allowed folder"}
    root = {"be root on the host"} if os.getuid() == 0 else set()
    private = {"reach the runner's key, policy, state or home"}
    expected = {"no mask": masks, "user 0": root, **dict.fromkeys(folders, private | root)}.get(hole, private)
    assert open_ways == expected


def test_the_trial_with_the_policys_own_lists_finds_nothing_open(tmp_path, need_sandbox, models):
    need_sandbox("sandboxed")
    state = StateFolder(tmp_path / "state")
    state.create()
    (state.root / "runner.key").write_text("secret")
    policy = load_policy(write_policy(tmp_path, f'model_roots = ["{models}"]\n'))
    executor = LocalExecutor(CLOCK, host_paths(policy, state.root))

    assert executor.sandbox().kind == "bwrap", executor.sandbox().reason
    tried = {escape.what: escape.refused for escape in executor.escapes()}
    assert tried["reach the runner's key, policy, state or home"]
    assert tried["read a credential below an allowed folder"]
    assert tried["connect to a socket below an allowed folder"]
