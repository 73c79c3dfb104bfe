"""Try the sandbox for real: run a small program in it that tries to get out, and believe what it finds.

Nothing is looked up instead of being tried: a host whose kernel forbids user namespaces has bubblewrap installed, too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bridge.errors import InfrastructureError
from bridge.executor.confine import Confinement, enclosed, nothing
from bridge.executor.interface import Execution, Hooks, RunDirectory
from bridge.executor.running import Run
from bridge.limits import MIB
from bridge.records import Command, JobSpec, Limits, SandboxApplied, SandboxSpec
from bridge.system.clock import Clock

_NOBODYS_DIGEST: Final = "0" * 64
_PROGRAM: Final = r"""
import json, os, socket, sys
secret, outside, pid = sys.argv[1:]
def tries(action):
    try:
        action()
    except OSError:
        return False
    return True
tries(lambda: open(outside, "w").write("x"))  # whether it got there is seen from outside
print(json.dumps({
    "reads a file outside": tries(lambda: open(secret).read()),
    "sees the host's processes": os.path.exists("/proc/%s/stat" % pid) and os.getppid() > 2,
    "has a network device": sorted(name for _, name in socket.if_nameindex()) != ["lo"],
    "cannot write its own directory": not tries(lambda: open("here", "w").write("x")),
}))
"""
_LIMITS: Final = Limits(
    wall_s=30.0,
    inactivity_s=30.0,
    grace_s=0.5,
    memory_bytes=512 * MIB,
    processes=512,  # of the same user others may start many while the trial runs
    open_files=256,
    output_bytes=MIB,
    log_bytes=64 * 1024,
)


def try_sandbox(
    clock: Clock, uid: int | None, enclose: Callable[[JobSpec, RunDirectory], Confinement] = enclosed
) -> SandboxApplied:
    """Run the escape program in this platform's sandbox and say what a run as this user would get.

    Args:
        clock: measures the try's own limits.
        uid: the user runs will be, or None for ours.
        enclose: puts the sandbox around a run.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-sandbox-") as name:
        root = Path(name)
        secret = root / "secret"
        secret.write_text("not for the run")
        directory = make_directory(root / "run")
        program = Path(sys.executable)
        argv = (str(program), "-I", "-c", _PROGRAM, str(secret), str(root / "outside"), str(os.getpid()))
        try:
            spec = _spec(argv, uid)
            confinement = enclose(spec, directory)
            quiet = Hooks(on_log=lambda _: None, on_started=lambda *_: None, should_stop=lambda: None)
            execution = Run(spec, directory, quiet, secrets=(), confinement=confinement, clock=clock).execute()
        except InfrastructureError as error:
            return nothing(error.message)
        problem = "tried, and a run writes a file outside" if (root / "outside").exists() else _problem(execution)
        return confinement.applied if problem is None else nothing(problem)


def make_directory(root: Path) -> RunDirectory:
    """Create a run's folders, all private."""
    directory = RunDirectory(root, root / "work", root / "out", root / "home", root / "tmp")
    for folder in (root, directory.work, directory.out, directory.home, directory.tmp):
        folder.mkdir(mode=0o700)
    return directory


def _problem(execution: Execution) -> str | None:
    """Say why the sandbox is not one, or None when every try to get out failed."""
    text = execution.log.decode("utf-8", "replace").strip()
    if not execution.ok or execution.program_exit != 0:
        last = text.splitlines()[-1] if text else execution.message or f"exit code {execution.program_exit}"
        return "it does not start: " + "".join(char for char in last if char.isprintable())[:300]
    try:
        found: dict[str, Any] = json.loads(text.partition("\n")[0])
    except ValueError:
        return "its trial program gave no answer"
    wrong = [what for what, happened in found.items() if happened]
    return f"tried, and a run {', '.join(wrong)}" if wrong else None


def _spec(argv: tuple[str, ...], uid: int | None) -> JobSpec:
    return JobSpec(
        id="0" * 26,
        request_digest=_NOBODYS_DIGEST,
        preset="sandbox-trial",
        preset_digest=_NOBODYS_DIGEST,
        policy_digest=_NOBODYS_DIGEST,
        params={},
        profile="smoke",
        code="host",
        trust_class="host",
        commands=(Command(name="trial", argv=argv),),
        environment=(),
        limits=_LIMITS,
        sandbox=SandboxSpec(mode="required", uid=uid),
        outputs=(),
        gate_profile="smoke",
    )
