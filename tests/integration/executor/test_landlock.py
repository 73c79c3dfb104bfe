"""Landlock alone: the wall around the host's own code where namespaces are denied, and what it is not started for."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import Hooks
from bridge.executor.processes.subreaper import stage
from bridge.executor.running import RunExecution
from bridge.executor.sandbox import bubblewrap, bwrap_options, landlock
from bridge.executor.sandbox.allowlist import allow_list
from bridge.executor.sandbox.user import closed_to
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.system.clock import SystemClock
from bridge.system.process import Child
from tests.fakes.local_jobs import Jobs
from tests.integration.executor.inside import TRY, told

pytestmark = pytest.mark.skipif(landlock.kernel_abi() == 0, reason="this kernel has no Landlock")
ROOT = Path(__file__).resolve().parents[3]
ORDINARY = 54333
OLDEST_FOR_OWN_USER = 6


def run(base: Path, *programs: str, abi: int | None = None, argv=None, **fields):
    """Run programs, or command lines, behind the wall; return what it came to."""
    spec = Jobs(executor=None, base=base).spec(*programs, argv=argv, sandbox=SandboxSpec(mode="required", **fields))
    directory = make_directory(base / "run")
    wall = landlock.enclose(spec, directory, abi)
    quiet = Hooks(on_log=lambda _: None, should_stop=lambda: None)
    return RunExecution(spec, directory, quiet, secrets=(), confinement=wall, clock=SystemClock()).execute()


def trials_as(uid: int) -> dict[str, list]:
    """Return what trials came to as another user, by version."""
    needed = [*allow_list([sys.executable], ()).declared, str(ROOT)]
    closed = closed_to(uid, dict.fromkeys((*needed, *map(os.path.realpath, needed))))

    def become() -> None:
        if uid != os.getuid():
            if closed:
                stage(list(dict.fromkeys(closed.values())), {path: path for path in closed})
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)

    environment = {"PATH": os.environ["PATH"], "HOME": "/var/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "tests.integration.executor.landlock_as_anybody"]
    done = subprocess.run(
        argv, preexec_fn=become, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.ci
@pytest.mark.parametrize("uid", sorted({os.getuid(), ORDINARY if os.getuid() == 0 else os.getuid()}))
def test_what_every_version_is_offered_for_holds_in_its_trial(uid):
    outcomes = trials_as(uid)
    for version, (kind, reason, tried, reached, user) in outcomes.items():
        if uid != 0 and int(version) < OLDEST_FOR_OWN_USER:
            assert (kind, tried) == ("none", 0)
            assert "does not keep a run from signalling this user's other processes" in reason
        else:
            assert (kind, reason, reached) == ("landlock", None, [])
            assert tried > 15
            assert user != 0


PROBES = r"""
import ctypes, resource, signal
def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def make(path):
    with open(path, "x") as file:
        file.write("x")
tell(
    own=[attempt(make, os.path.join(os.environ[name], "x")) for name in ("PWD", "HOME", "TMPDIR", "KAKEYA_OUT")],
    model=attempt(lambda: open(MODEL).read()), pair=attempt(lambda: [each.close() for each in socket.socketpair()]),
    processors=attempt(lambda: open("/proc/cpuinfo").read(10)),
    itself=[attempt(lambda: open(f"/proc/self/{name}").read(10)) for name in ("maps", "status", "cgroup")],
    descriptors=attempt(lambda: len(os.listdir("/proc/self/fd")) > 2),
    refused=dict(
        key=attempt(lambda: open(KEY).read()), folder=attempt(os.listdir, os.path.dirname(KEY)),
        credential=attempt(lambda: open(os.path.dirname(MODEL) + "/.netrc").read()),
        shadow=attempt(lambda: open("/etc/shadow").read()), write_model=attempt(open, MODEL, "a"),
        cut_model=attempt(os.truncate, MODEL, 0), link=attempt(os.link, MODEL, "linked"),
        rename=attempt(os.rename, MODEL, "moved"), remove=attempt(os.unlink, MODEL), tmp=attempt(make, "/tmp/kakeya-x"),
        shared=attempt(make, "/dev/shm/kakeya-x"), mode=attempt(os.chmod, MODEL, 0o777), time=attempt(os.utime, MODEL),
        owner=attempt(os.chown, MODEL, os.getuid(), os.getgid()),
        attribute=attempt(os.setxattr, MODEL, "user.x", b"x"),
        signal=attempt(os.kill, VICTIM, 0), limit=attempt(resource.prlimit, VICTIM, resource.RLIMIT_NOFILE, (9, 9)),
        priority=attempt(os.setpriority, os.PRIO_PROCESS, VICTIM, 19), pin=attempt(os.sched_setaffinity, VICTIM, {0}),
        memory=attempt(lambda: open(f"/proc/{VICTIM}/mem")),
        words=attempt(lambda: open(f"/proc/{VICTIM}/cmdline").read()),
        environment=attempt(lambda: open(f"/proc/{VICTIM}/environ").read()), processes=attempt(os.listdir, "/proc"),
        path_socket=attempt(socket.socket, socket.AF_UNIX), internet=attempt(socket.socket, socket.AF_INET),
        datagram=attempt(socket.socket, socket.AF_INET, socket.SOCK_DGRAM), netlink=attempt(socket.socket, 16, 3),
        vsock=attempt(socket.socket, 40), mount=attempt(call, 165, b"none", b"/tmp", b"tmpfs", 0, 0),
        user_namespace=attempt(call, 272, 0x10000000), trace=attempt(call, 101, 16, VICTIM, 0, 0),
        ring=attempt(call, 425, 1, 0), keys=attempt(call, 250, 0, -3, 0),
        setting=attempt(open, "/proc/sys/vm/swappiness", "a"), mounts=attempt(open, "/proc/self/mountinfo"),
        connections=attempt(open, "/proc/self/net/tcp"), sockets=attempt(open, "/proc/self/net/unix"),
        handle=attempt(os.pidfd_open, VICTIM), attributes=attempt(os.listxattr, OUTSIDE),
        segment=attempt(call, 31, MEMORY, 2, ctypes.create_string_buffer(256)),
        by_thread=attempt(open, f"/proc/self/task/{os.getpid()}/net/tcp"),
    ),
    not_held=[attempt(lambda: os.stat(OUTSIDE).st_size), attempt(os.getsid, VICTIM)],
    outside=attempt(lambda: open(OUTSIDE).read()),
)
"""


@pytest.fixture
def open_folder():
    """A folder that every user may enter, as bubblewrap has to when it is asked to mount it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def segment():
    """The number of a shared memory of System V that everybody may attach."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.shmget(0, 4096, 0o1666)
    assert number >= 0
    yield number
    libc.shmctl(number, 0, None)


@pytest.mark.parametrize("abi", sorted({OLDEST_FOR_OWN_USER, landlock.kernel_abi()}))
def test_behind_landlock_alone_a_program_has_its_folders_and_models_and_nothing_of_its_user(
    tmp_path, token, open_folder, segment, abi
):
    tmp_path.chmod(0o755)
    models, key, outside = tmp_path / "models", tmp_path / "state" / "runner.key", open_folder / "outside"
    models.mkdir()
    key.parent.mkdir()
    for path in (models / "weights", models / ".netrc", key, outside):
        path.write_text("content")
        path.chmod(0o666)
    null = os.open(os.devnull, os.O_WRONLY)
    with Child([sys.executable, "-c", "import time; time.sleep(600)"], env={}, cwd="/", output_fd=null) as victim:
        paths = tuple(map(str, (models / "weights", key, outside)))
        names = f"MODEL, KEY, OUTSIDE, VICTIM, MEMORY = {(*paths, victim.pid, segment)}"
        program = f"import socket\n{TRY}\n{names}\n{PROBES}# {token}"
        execution = run(tmp_path, program, abi=abi, read_only=(str(models),))
        alive, session = victim.poll() is None, os.getsid(victim.pid)
    os.close(null)
    answer = told(execution)

    assert answer.pop("own") == ["got through: None"] * 4
    assert {name for name, outcome in answer["refused"].items() if outcome != "refused"} == set()
    assert answer["model"] == "got through: 'content'"
    own_facts = [*answer["itself"], answer["pair"], answer["processors"]]
    assert all(outcome.startswith("got through") for outcome in own_facts), own_facts
    assert answer["descriptors"] == "got through: True"
    assert (models / "weights").read_text() == "content"
    assert alive
    assert (execution.sandbox.kind, execution.sandbox.namespaces) == ("landlock", ())
    assert answer["outside"] == "refused"
    assert answer["not_held"] == ["got through: 7", f"got through: {session}"]
    assert landlock.NOT_HELD in execution.sandbox.filters
    assert execution.sandbox.uid != 0


def test_the_page_and_the_record_say_the_same_of_what_it_never_holds():
    lines = (ROOT / "SECURITY.md").read_text("utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("- **What Landlock never holds")]

    assert line.partition("code without a network): ")[2] == f"{landlock.NOT_HELD.removeprefix('not held: ')}."


def test_behind_it_a_program_of_the_runner_starts_the_program_that_it_is_given(tmp_path, token):
    tmp_path.chmod(0o755)
    given = shutil.copy(str(shutil.which("true")), tmp_path / "given")
    code = (
        f"import subprocess, sys; print('exit code', subprocess.run(sys.argv[2:], check=False).returncode)  # {token}"
    )
    argv = (sys.executable, "-I", "-S", "-c", code, "--@run", str(given))
    execution = run(tmp_path, argv=[argv])

    assert execution.log.decode().strip() == "exit code 0"
    assert execution.sandbox.kind == "landlock"


@pytest.mark.parametrize(
    ("changes", "sandbox", "why"),
    [
        ({"code": "request", "trust_class": "untrusted"}, {}, "code of a request runs in namespaces of its own or not"),
        ({}, {"network": ("data.example.org",)}, "a run with a network needs a network namespace"),
        ({}, {"network": "internet"}, "a run with a network needs a network namespace"),
        ({}, {"network": "host"}, "a run with a network needs a network namespace"),
    ],
)
def test_it_is_not_started_for_code_of_a_request_or_with_a_network(tmp_path, changes, sandbox, why):
    spec = Jobs(executor=None, base=tmp_path).spec("pass", sandbox=SandboxSpec(mode="required", **sandbox))
    with pytest.raises(SandboxUnavailableError, match=why):
        landlock.enclose(spec.evolve(**changes), make_directory(tmp_path / "run"))


def test_a_kernel_without_it_and_a_rule_that_it_does_not_take_start_nothing(tmp_path, monkeypatch, token):
    with pytest.raises(SandboxUnavailableError, match="no Landlock"):
        run(tmp_path, "pass", abi=0)
    monkeypatch.setattr(landlock, "READ", 1 << 40)
    other = tmp_path / "other"
    other.mkdir()
    execution = run(other, f"print('it ran')  # {token}")

    assert (execution.ok, execution.ending) == (False, "not_started")
    assert "the sandbox could not be set up" in execution.message
    assert b"it ran" not in execution.log


@pytest.mark.parametrize(("code", "outcome"), [("host", "got through: 'content'"), ("request", "refused")])
def test_inside_bubblewrap_a_mount_that_should_not_be_there_opens_nothing_to_code_of_a_request(
    need_sandbox, tmp_path, monkeypatch, token, open_folder, code, outcome
):
    need_sandbox("sandboxed")
    (open_folder / "key").write_text("content")
    original = bwrap_options.options
    hole = ["--ro-bind", str(open_folder), str(open_folder)]
    monkeypatch.setattr(bwrap_options, "options", lambda *given: [*hole, *original(*given)])
    program = f"""{TRY}
def own(name):
    with open(os.path.join(os.environ[name], "x"), "w") as file:
        file.write("x")
    os.rename(os.path.join(os.environ[name], "x"), os.path.join(os.environ[name], "y"))
tell(key=attempt(lambda: open({str(open_folder / "key")!r}).read()),
     own=[attempt(own, name) for name in ("PWD", "HOME", "TMPDIR", "KAKEYA_OUT")])  # {token}
"""
    spec = Jobs(executor=None, base=tmp_path).spec(program, sandbox=SandboxSpec(mode="required"), code=code)
    directory = make_directory(tmp_path / "run")
    quiet = Hooks(on_log=lambda _: None, should_stop=lambda: None)
    box = bubblewrap.enclose(spec, directory)
    execution = RunExecution(spec, directory, quiet, secrets=(), confinement=box, clock=SystemClock()).execute()

    assert told(execution) == {"key": outcome, "own": ["got through: None"] * 4}
    inside = f"Landlock ABI {landlock.kernel_abi()} inside"
    assert (inside in execution.sandbox.filters) == (code == "request")


def test_inside_bubblewrap_the_wall_is_put_up_by_what_answers_as_a_python_whatever_its_name(
    need_sandbox, tmp_path, token, open_folder
):
    need_sandbox("sandboxed")
    script = open_folder / "python-run"
    script.write_text(f"#!/bin/sh\necho its own words: $1  # {token}\n")
    script.chmod(0o755)
    argv = [(str(script), "ran"), (sys.executable, "-I", "-S", "-c", f"print('a Python')  # {token}")]
    spec = Jobs(executor=None, base=tmp_path).spec(argv=argv, sandbox=SandboxSpec(mode="required"), code="request")
    directory = make_directory(tmp_path / "run")
    quiet = Hooks(on_log=lambda _: None, should_stop=lambda: None)
    box = bubblewrap.enclose(spec, directory)
    execution = RunExecution(spec, directory, quiet, secrets=(), confinement=box, clock=SystemClock()).execute()

    assert execution.log.decode().splitlines() == ["its own words: ran", "a Python"]
    assert f"Landlock ABI {landlock.kernel_abi()} inside, around c1 alone" in execution.sandbox.filters
