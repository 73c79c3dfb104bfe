"""The kinds of run that the probes are tried as: who the runner is, who the run is, whose code it is."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.studies.report import ROOT
from benchmarks.studies.sandbox.escapes.scene import Scene, host_scene
from benchmarks.studies.sandbox.jobs import QUIET, carry_out
from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import Execution, HostPaths, RunDirectory
from bridge.executor.processes.subreaper import stage
from bridge.executor.running import RunExecution
from bridge.executor.sandbox import landlock
from bridge.executor.sandbox.allowlist import allow_list
from bridge.executor.sandbox.bwrap_options import TMPDIR
from bridge.executor.sandbox.user import JOB_UID, closed_to
from bridge.executor.trial import make_directory
from bridge.limits import MIB
from bridge.records.jobspec import Command, JobSpec, Limits, SandboxSpec
from bridge.records.network import Network
from bridge.system.clock import SystemClock
from tests.integration.setup.protections import refuse_when

OTHER_UID, PEER_UID, RUNNER_UID = 54331, 54332, 54333
CLONE_NEWUSER = 0x10000000
INSIDE = Path(__file__).parent / "inside"
MARK = "ESCAPES "
LIMITS = Limits(
    wall_s=240.0, inactivity_s=240.0, grace_s=0.5, memory_bytes=512 * MIB, processes=256, open_files=1024,
    output_bytes=32 * MIB, log_bytes=MIB,
)  # fmt: skip
CONDUCTOR = """
import os
while os.read(int(os.environ["KAKEYA_PEER_REPLY"]), 4096): pass
"""

Found = dict[str, str | None]


@contextmanager
def new_folder() -> Iterator[Path]:
    """Yield a new folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="kakeya-escapes-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def job(scene: Scene, *, uid: int | None, code: str, peer_uid: int | None = None, network: Network = False) -> JobSpec:
    """Return the job spec of a run of the probes."""
    argv = (sys.executable, "-I", "-S", "inside/main.py")
    if peer_uid is not None:
        command = Command(name="probes", argv=(sys.executable, "-I", "-S", "-c", CONDUCTOR), peer=argv)
    else:
        command = Command(name="probes", argv=argv)
    return JobSpec(
        id="01k9x3" + "1" * 20, request_digest="0" * 64, preset="escapes", preset_digest="0" * 64,
        policy_digest="0" * 64, params={}, profile="smoke", code=code,
        trust_class="host" if code == "host" else "untrusted",
        commands=(command,), environment=(), limits=LIMITS,
        sandbox=SandboxSpec(
            mode="required", uid=uid, peer_uid=peer_uid, read_only=(str(scene.models),), network=network
        ),
        outputs=(), gate_profile="smoke",
    )  # fmt: skip


def prepare(scene: Scene, spec: JobSpec, only: Iterable[str] = (), *, mounts: bool = True) -> RunDirectory:
    """Make the run's folders, with the program and what it is told in the work folder.

    Args:
        scene: what the probes try to reach.
        spec: the run.
        only: the names of the probes, where not all are tried.
        mounts: whether the sandbox has mounts of its own, which are looked at then.
    """
    directory = make_directory(scene.root / "run")
    allow = allow_list(
        [command.argv[0] for command in spec.commands], spec.sandbox.read_only, tools=spec.code == "request"
    )
    own = [
        *allow.declared,
        *allow.system,
        *allow.links,
        *map(str, (directory.work, directory.out, directory.home, directory.tmp, TMPDIR)),
    ]
    own += [str(directory.root / "peer" / name) for name in ("work", "out", "home", "tmp")]
    shutil.copytree(INSIDE, directory.work / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    targets = scene.targets | {"own_paths": own, "parent": str(directory.root), "only": sorted(only)}
    targets |= {"network": spec.sandbox.network, "mounts": mounts}
    (directory.work / "inside" / "targets.json").write_text(json.dumps(targets))
    (directory.work / "kakeya_planted.py").write_text("")
    return directory


def host_paths(scene: Scene) -> HostPaths:
    """Return what a runner with this scene's files hides and shows."""
    private = tuple(str(scene.root / name) for name in ("state/runner.key", "state", "config/policy.toml", "home"))
    return HostPaths(private=private, read_only=(str(scene.models),))


def try_out(scene: Scene, spec: JobSpec) -> tuple[Found, int]:
    """Run the probes; return what each reached, and how many files of /proc and /sys were opened.

    Raises:
        RuntimeError: the program inside gave no answer.
    """
    answer = answer_of(carry_out(spec, prepare(scene, spec), host_paths(scene)))
    return answer["probes"] | scene.reached(), answer["files"]


def try_landlock(scene: Scene, spec: JobSpec) -> tuple[Found, int]:
    """Run the probes behind Landlock alone, as on a host that denies namespaces.

    Raises:
        RuntimeError: the program inside gave no answer.
    """
    directory = prepare(scene, spec, mounts=False)
    wall = landlock.enclose(spec, directory)
    run = RunExecution(spec, directory, QUIET, secrets=(), confinement=wall, clock=SystemClock())
    answer = answer_of(run.execute())
    return answer["probes"] | scene.reached(), answer["files"]


def answer_of(execution: Execution) -> dict[str, Any]:
    """Return what the program inside printed.

    Raises:
        RuntimeError: it printed nothing of the kind.
    """
    for line in execution.log.decode("utf-8", "replace").splitlines():
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    raise RuntimeError(f"{execution.ending}: {execution.message}: {execution.log[-2000:]!r}")


def as_root(
    *,
    uid: int | None,
    run_uid: int,
    code: str = "host",
    peer_uid: int | None = None,
    network: Network = False,
    attempt: Callable[[Scene, JobSpec], tuple[Found, int]] = try_out,
) -> tuple[Found, int]:
    """Try the probes as a run of a root runner."""
    if os.getuid() != 0:
        raise RuntimeError("a root runner's runs are tried as root")
    with new_folder() as folder, host_scene(folder, run_uid) as scene:
        return attempt(scene, job(scene, uid=uid, code=code, peer_uid=peer_uid, network=network))


def as_same_user(*, code: str = "host", network: Network = False, wall: str = "bubblewrap") -> tuple[Found, int]:
    """Try the probes as a run of an ordinary runner, whose user the run is."""
    if os.getuid() != 0:
        attempt = try_landlock if wall == "landlock" else try_out
        with new_folder() as folder, host_scene(folder, os.getuid()) as scene:
            return attempt(scene, job(scene, uid=None, code=code, network=network))
    given = f"code={code!r}, network={network!r}, wall={wall!r}"
    answer = _told_by(RUNNER_UID, f"answer_same_user({given})")
    return answer["found"], answer["files"]


def _told_by(uid: int | None, call: str) -> dict[str, Any]:
    """Return what a call of this module's prints, in a process of its own, as a user or as this one.

    Raises:
        RuntimeError: it failed.
    """
    needed = [*allow_list([sys.executable], ()).declared, str(ROOT)]
    closed = {} if uid is None else closed_to(uid, dict.fromkeys((*needed, *map(os.path.realpath, needed))))

    def become() -> None:
        if closed:
            stage(list(dict.fromkeys(closed.values())), {path: path for path in closed})
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)

    words = [sys.executable, "-c", f"from benchmarks.studies.sandbox.escapes import situations; situations.{call}"]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/var/tmp",
    }
    done = subprocess.run(
        words,
        preexec_fn=become,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    answer: dict[str, Any] = json.loads(done.stdout.rpartition(MARK)[2])
    return answer


def answer_same_user(*, code: str, network: Network, wall: str) -> None:
    """Print what a run of this very user reached; started as that user."""
    outcomes, files = as_same_user(code=code, network=network, wall=wall)
    print(MARK + json.dumps({"found": outcomes, "files": files}))


def without_a_sandbox(*only: str) -> Found:
    """Return what probes reach for an ordinary user whom nothing confines."""
    probes: Found = _told_by(RUNNER_UID if os.getuid() == 0 else None, f"answer_without_a_sandbox({only!r})")["probes"]
    return probes


def answer_without_a_sandbox(only: tuple[str, ...]) -> None:
    """Run probes as this very user, in the run's folder; what they reached is printed."""
    with new_folder() as folder, host_scene(folder, os.getuid()) as scene:
        directory = prepare(scene, job(scene, uid=None, code="host"), only, mounts=False)
        words = [sys.executable, "-I", "-S", "inside/main.py"]
        subprocess.run(words, cwd=directory.work, env={"TMPDIR": str(directory.tmp)}, check=True)


USERS = ("root runner", "other user", "same user")


def where_denied(user: str, code: str, network: Network) -> str | None:
    """Ask the executor for a run where namespaces are denied; return why it refused, None where the run began.

    Args:
        user: one of `USERS`.
        code: whose code it runs, `host` or `request`.
        network: what it reaches.
    """
    uid = RUNNER_UID if user == "same user" and os.getuid() == 0 else None
    refusal: str | None = _told_by(uid, f"answer_where_denied({user!r}, {code!r}, {network!r})")["refusal"]
    return refusal


def answer_where_denied(user: str, code: str, network: Network) -> None:
    """Deny this process namespaces, ask the executor for the run, and print its refusal."""
    refuse_when(["clone", "unshare"], 0, CLONE_NEWUSER)
    uid = OTHER_UID if user == "other user" else None
    run_uid = {"root runner": JOB_UID, "other user": OTHER_UID}.get(user, os.getuid())
    refusal = None
    with new_folder() as folder, host_scene(folder, run_uid) as scene:
        spec = job(scene, uid=uid, code=code, network=network)
        try:
            carry_out(spec, prepare(scene, spec, ["resolve a name"], mounts=False), host_paths(scene))
        except SandboxUnavailableError as error:
            refusal = error.message
    print(MARK + json.dumps({"refusal": refusal}))


NAMES: Network = ("data.example.org", "localtest.me", "*.nip.io")
NETWORKS: dict[str, Network] = {"names": NAMES, "internet": "internet", "host": "host"}


def _with_networks() -> Iterator[tuple[str, Callable[[], tuple[Found, int]]]]:
    """Yield the situations of runs with a network: each user, each kind of code, each network."""
    for name, network in NETWORKS.items():
        for code in ("host", "request"):
            kind = f"{code} code, network {name}"
            other = functools.partial(as_root, uid=OTHER_UID, run_uid=OTHER_UID, code=code, network=network)
            yield (
                f"root runner, {kind}",
                functools.partial(as_root, uid=None, run_uid=JOB_UID, code=code, network=network),
            )
            yield f"other user, {kind}", other
            yield f"same user, {kind}", functools.partial(as_same_user, code=code, network=network)


SITUATIONS: dict[str, Callable[[], tuple[Found, int]]] = {
    **dict(_with_networks()),
    "landlock alone, root runner": lambda: as_root(uid=None, run_uid=JOB_UID, attempt=try_landlock),
    "landlock alone, other user": lambda: as_root(uid=OTHER_UID, run_uid=OTHER_UID, attempt=try_landlock),
    "landlock alone, same user": lambda: as_same_user(wall="landlock"),
    "root runner": lambda: as_root(uid=None, run_uid=JOB_UID),
    "other user": lambda: as_root(uid=OTHER_UID, run_uid=OTHER_UID),
    "same user": as_same_user,
    "request code": lambda: as_root(uid=OTHER_UID, run_uid=OTHER_UID, code="request"),
    "peer": lambda: as_root(uid=OTHER_UID, run_uid=PEER_UID, code="request", peer_uid=PEER_UID),
}
NOT_STARTED: dict[str, Callable[[], str | None]] = {
    f"landlock alone, {user}, {code} code, network {name}": functools.partial(where_denied, user, code, network)
    for user in USERS
    for code in ("host", "request")
    for name, network in {"none": False, **NETWORKS}.items()
    if code == "request" or network
}
"""The cells that Landlock alone is not started for: each returns why, or None where the run began all the same."""
