"""Two places that give no sandbox, simulated here: what doctor says, what runs, what is refused.

`container` is root in a container without more rights, as a rented GPU often is: no CAP_SYS_ADMIN, and the system calls
that make namespaces and mounts are refused by seccomp as in Docker's default profile. `apparmor` is a kernel that takes
a user namespace's capabilities: a bwrap that fails as the real one does on Ubuntu 24.04 lies over it. Both need root
here, and change nothing outside of their own processes.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study
from bridge.bus.open.embedded import embedded_folder
from bridge.executor.sandbox.seccomp import program

PRESET = "place-probe"
PLACES = ("container", "apparmor")
BWRAP = Path("/usr/bin/bwrap")
HOME = Path("/root")
STUB = """#!/bin/sh
[ "$1" = --help ] && exec {real} --help
echo 'bwrap: setting up uid map: Permission denied' >&2
exit 1
"""
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_WALL_S = 1800


def run(case: str) -> list[Row]:
    """Ask doctor, run a preset of the host, and send code, in one of the places.

    Raises:
        RuntimeError: this process may not make the place.
    """
    if os.geteuid() != 0 or not BWRAP.exists():
        raise RuntimeError("simulating a place needs root and bubblewrap")
    with tempfile.TemporaryDirectory(prefix="kakeya-place-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        _policy(folder)
        inside = _container(folder) if case == "container" else _apparmor(folder)
        try:
            return [_doctor(inside, folder), _host_preset(inside, folder), _request_code(inside, folder)]
        finally:
            _call(inside, folder, "kakeya-runner", "stop", "--state", str(_runner_state(folder)))


def _container(folder: Path) -> list[str]:
    """Return what enters a container; in it the homes are open, as the folders of an image are."""
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    filtered = [sys.executable, "-m", "benchmarks.studies.hostile_places", *drop]
    upper, work = folder / "upper", folder / "work"
    upper.mkdir()
    work.mkdir()
    over = f"lowerdir={HOME},upperdir={upper},workdir={work}"
    opened = f'mount -t overlay overlay -o {over} {HOME} && chmod 755 {HOME} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", opened, "sh", *filtered]


def _apparmor(folder: Path) -> list[str]:
    real, stub = folder / "bwrap-real", folder / "bwrap"
    shutil.copy(BWRAP, real)
    stub.write_text(STUB.format(real=real))
    stub.chmod(0o755)
    return ["unshare", "--mount", "sh", "-c", f'mount --bind {stub} {BWRAP} && exec "$@"', "sh"]


def _policy(folder: Path) -> None:
    """Allow the installed probe under another name, with time for a machine that others keep busy."""
    presets, policy = folder / "presets", folder / "config" / "kakeya" / "policy.toml"
    presets.mkdir()
    policy.parent.mkdir(parents=True)
    text = (ROOT / "bridge" / "presets" / "mlx-env-probe.toml").read_text("utf-8")
    text = text.replace('"mlx-env-probe"', f'"{PRESET}"').replace("300.0", "1500.0").replace("120.0", "1500.0")
    (presets / f"{PRESET}.toml").write_text(text)
    allowed = f'[presets]\nfolder = "{presets}"\n'
    policy.write_text(f'schema = 1\nname = "place"\ninterpreter = "{sys.executable}"\n{allowed}')
    for path in (policy, presets / f"{PRESET}.toml"):
        path.chmod(0o600)


def _doctor(inside: Sequence[str], folder: Path) -> Row:
    done = _call(inside, folder, "kakeya-runner", "doctor", "--json", "--state", str(folder / "state"))
    found = [one for one in json.loads(done.stdout) if one["name"] == "sandbox"]
    return {"what": "doctor", "lines": len(found), "text": found[0]["text"], "remedy": found[0]["remedy"]}


def _host_preset(inside: Sequence[str], folder: Path) -> Row:
    words = ("run", PRESET, "--bus", "embedded", "--wait")
    done = _call(inside, folder, "kakeya-mac", *words, cwd=_clone(folder))
    said = [line for line in done.stdout.splitlines() if "SANDBOX" in line or line.startswith("sandbox")]
    return {"what": "host preset", "exit_code": done.returncode, "said": said}


def _request_code(inside: Sequence[str], folder: Path) -> Row:
    words = ("run", "pytest-path", "-p", "path=tests", "--bus", "embedded", "--wait", "--json")
    done = _call(inside, folder, "kakeya-mac", *words, cwd=_clone(folder))
    outcome = json.loads(done.stdout.splitlines()[-1] if done.stdout.startswith('{"event') else done.stdout)["outcome"]
    return {"what": "code of a request", "exit_code": done.returncode, "reason": outcome["reason"],
            "message": outcome["message"], "remedy": outcome["remedy"]}  # fmt: skip


def _clone(folder: Path) -> Path:
    """Return a repository with one test in it."""
    clone = folder / "clone"
    if not clone.exists():
        (clone / "tests").mkdir(parents=True)
        (clone / "tests" / "test_one.py").write_text("def test_one(): pass\n")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "One test")):
            subprocess.run(["git", "-C", str(clone), *words], check=True, env=_environment(folder))
    return clone


def _runner_state(folder: Path) -> Path:
    return embedded_folder(folder / "data" / "kakeya") / "runner"


def _environment(folder: Path) -> dict[str, str]:
    own = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("data", "state", "config", "cache")}
    who = {f"GIT_{role}_{what}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAKEYA_", "GIT_"))}
    return kept | own | who | {"HOME": str(folder), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}


def _call(
    inside: Sequence[str], folder: Path, command: str, *words: str, cwd: Path = ROOT
) -> subprocess.CompletedProcess[Any]:
    argv = [*inside, str(Path(sys.executable).with_name(command)), *words]
    return subprocess.run(
        argv, cwd=cwd, env=_environment(folder), capture_output=True, text=True, timeout=_WALL_S, check=False
    )


def enter(argv: Sequence[str]) -> None:
    """Refuse this process and its children what Docker's default profile refuses, and become a program.

    Raises:
        OSError: the kernel did not take the filter.
    """
    code = program(platform.machine())
    if code is None:
        raise OSError(f"no filter for {platform.machine()}")

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    filled = Program(len(code) // 8, code)
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filled), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execvp(argv[0], list(argv))


STUDY = Study("hostile-places", "What happens where nothing can be confined?", lambda: PLACES, run)

if __name__ == "__main__":
    enter(sys.argv[1:])
