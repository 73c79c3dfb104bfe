"""The units that set-up writes: their text, what systemd says of them, and a sandbox under each protection."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.executor.processes.subreaper import stage
from bridge.executor.sandbox.allowlist import allow_list
from bridge.executor.sandbox.user import closed_to
from bridge.runner.service.serve import runner_place
from tests.integration.setup.machine import Host
from tests.integration.setup.protections import HARMLESS, PROTECTIONS, device_group
from tests.support.waiting import until

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).resolve().parents[3]
RUNNER, RUN, SOCKET = "kakeya-runner.service", "kakeya-run@.service", "kakeya-run.socket"
KINDS = {
    "linux-unit.txt": (RUNNER, ["--create-bus"]),
    "linux-local-bus-unit.txt": (RUNNER, ["--bus", "/srv/bus.git#0123"]),
    "linux-run-unit.txt": (RUN, []),
    "linux-job-user-run-unit.txt": (RUN, ["--job-user"]),
    "linux-run-socket.txt": (SOCKET, []),
}
EXPOSURE_MAX = {"linux-unit.txt": 2.0, "linux-run-unit.txt": 4.5, "linux-job-user-run-unit.txt": 4.5}


def unit_of(tmp_path: Path, name: str, options: list[str]) -> str:
    """Return a unit as a dry run shows it."""
    done = Host(tmp_path).setup("--dry-run", *options)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.partition(f"/etc/systemd/system/{name}\n")[2].splitlines()
    lines = itertools.takewhile(lambda line: line.startswith("       |"), shown)
    return "\n".join(line.removeprefix("       |").removeprefix(" ") for line in lines) + "\n"


def settings(unit: str) -> dict[str, list[str]]:
    """Return the settings of the [Service] section, each with its values in order."""
    values: dict[str, list[str]] = {}
    for line in unit.partition("[Service]")[2].partition("[Install]")[0].splitlines():
        name, mark, value = line.partition("=")
        if mark:
            values.setdefault(name, []).append(value)
    return values


@pytest.mark.parametrize("golden", KINDS)
def test_the_unit_is_the_recorded_one(golden: str, tmp_path) -> None:
    """`UPDATE_GOLDEN=1 pytest` writes it anew."""
    text = unit_of(tmp_path, *KINDS[golden]).replace(str(tmp_path), "TMP")
    text = re.sub(r"^DeviceAllow=.*\n", "", text, flags=re.MULTILINE)  # what this machine has
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / golden).write_text(text)
    assert text == (GOLDEN / golden).read_text()


@pytest.mark.parametrize("bus", ["https://example.org/my%20bus.git", "/srv/full%.git#0123"])
def test_a_percent_sign_of_a_route_is_no_specifier_of_systemds(bus: str, tmp_path: Path) -> None:
    text = unit_of(tmp_path, RUNNER, ["--bus", bus])
    escaped = bus.replace("%", "%%")
    assert f"kakeya-runner serve --bus {escaped} --policy" in text
    assert re.sub("%%", "", text).count("%") == 0
    assert bus.startswith("https") or f" -{escaped.partition('#')[0]}\n" in text


@pytest.mark.parametrize("golden", ["linux-unit.txt", "linux-local-bus-unit.txt"])
def test_the_daemon_may_write_its_state_and_what_it_remembers_beside_its_key(golden: str) -> None:
    unit = settings((GOLDEN / golden).read_text())
    words = unit["ExecStart"][0].split()
    policy, state = (Path(words[words.index(option) + 1]) for option in ("--policy", "--state"))
    writable = [Path(word.removeprefix("-")) for word in unit["ReadWritePaths"][0].split()]
    runner = runner_place("box", policy, state)

    assert unit["ProtectSystem"] == ["strict"]
    for folder in (runner.root, runner.identity):
        assert any(folder.is_relative_to(place) for place in writable), folder
    assert not any(policy.is_relative_to(place) for place in writable)


def test_a_request_that_actions_wakes_may_write_what_its_runner_remembers(tmp_path: Path) -> None:
    archive = tmp_path / "runner.tar.gz"
    archive.write_bytes(b"what GitHub published")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    actions = ["--actions-url", "https://example.org/o/r", "--actions-archive", str(archive)]
    unit = settings(unit_of(tmp_path / "host", "kakeya-actions.service", [*actions, "--actions-sha256", digest]))

    assert unit["ProtectSystem"] == ["full"]  # which makes /etc read-only
    assert unit["ReadWritePaths"] == ["-/etc/kakeya/identity"]


@pytest.mark.parametrize("golden", ["linux-unit.txt", "linux-local-bus-unit.txt"])
def test_a_service_that_its_owner_drained_or_stopped_stays_ended(golden: str) -> None:
    """systemd.service(5): on-failure leaves out an exit code of 0, in which `drain` and `stop` end the runner."""
    assert settings((GOLDEN / golden).read_text())["Restart"] == ["on-failure"]


@pytest.mark.parametrize("golden", EXPOSURE_MAX)
def test_systemd_finds_the_unit_little_exposed(tmp_path, missing, golden) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("systemd", "systemd-analyze is not installed")
    level = exposure(tmp_path, KINDS[golden][0], (GOLDEN / golden).read_text())
    assert level <= EXPOSURE_MAX[golden]


def exposure(root: Path, name: str, text: str) -> float:
    """Return what systemd says of a unit below a root of its own."""
    folder = root / "etc" / "systemd" / "system"
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    command = ["systemd-analyze", "security", "--offline=yes", f"--root={root}", "--no-pager", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    level = re.search(r"Overall exposure level for [^:]+: ([\d.]+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    return float(level[1])


def as_service(names: dict[str, list[str]]) -> None:
    """Take on protections in a forked process, the file system's first and the filters of system calls last."""
    order = [name for name in PROTECTIONS if name in names]
    assert ctypes.CDLL(None).unshare(0x20000) == 0  # CLONE_NEWNS
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for name in order:
        PROTECTIONS[name](names[name])


BWRAP = (
    *(
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
        "--unshare-cgroup",
    ),
    *("--disable-userns", "--cap-drop", "ALL", "--hostname", "sandbox", "--ro-bind", "/usr", "/usr", "--symlink"),
    *("usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
    *("--dev", "/dev", "--tmpfs", "/tmp", "--", "/usr/bin/test", "-d", "/proc/self"),
)
NEED_ROOT = pytest.mark.skipif(os.getuid() != 0 or sys.platform != "linux", reason="services are started by root")


def run_bwrap(take_on: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    """Run a sandbox as a service's user would, after its process took on protections."""

    def become() -> None:
        take_on()
        os.setgroups([])
        os.setgid(65533)
        os.setuid(65533)

    try:
        return subprocess.run(
            BWRAP, preexec_fn=become, capture_output=True, text=True, timeout=240, check=False, cwd="/"
        )
    finally:
        remove_own_group()


def remove_own_group() -> None:
    """Remove a control group, which stays busy until the last of its dead has been collected."""
    group = device_group(os.getpid())

    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    until(is_gone, why=f"{group} is busy")


@NEED_ROOT
def test_every_setting_of_a_run_s_unit_is_tried_or_known_to_be_harmless() -> None:
    for golden in ("linux-run-unit.txt", "linux-job-user-run-unit.txt"):
        named = set(settings((GOLDEN / golden).read_text()))
        assert named <= set(PROTECTIONS) | HARMLESS, named - set(PROTECTIONS) - HARMLESS


@NEED_ROOT
@pytest.mark.parametrize("name", [*PROTECTIONS, "all together"])
@pytest.mark.needs("bwrap")
def test_a_sandbox_gets_its_own_proc_under_each_protection_of_a_run_s_unit(name: str) -> None:
    unit = settings((GOLDEN / "linux-run-unit.txt").read_text())
    chosen = unit if name == "all together" else {name: unit[name]}
    done = run_bwrap(lambda: as_service(chosen))
    assert done.returncode == 0, done.stderr


TRIALS = """
from bridge.executor.interface import RunKind
from bridge.executor.trial import try_sandbox
from bridge.system.clock import SystemClock
for network in ("none", "proxy"):
    trial = try_sandbox(SystemClock(), None, kind=RunKind("host", network=network))
    reached = [escape.what for escape in trial.escapes if not escape.refused]
    print(network, trial.applied.kind, trial.applied.reason, reached)
"""
FILTERS = {"CapabilityBoundingSet", "NoNewPrivileges", "RestrictAddressFamilies"}


@NEED_ROOT
@pytest.mark.ci
@pytest.mark.needs("bwrap")
def test_a_sandbox_holds_in_its_trial_under_all_protections_of_a_run_s_unit_together() -> None:
    if ROOT.is_relative_to("/tmp") or ROOT.is_relative_to("/var/tmp"):
        pytest.skip("a unit's own /tmp hides a clone that lies there")
    unit = settings((GOLDEN / "linux-run-unit.txt").read_text())
    last = {name: value for name, value in unit.items() if name in FILTERS or name.startswith("SystemCall")}
    needed = [*allow_list([sys.executable], ()).declared, str(ROOT)]
    closed = closed_to(65533, dict.fromkeys((*needed, *map(os.path.realpath, needed))))

    def become() -> None:
        as_service({name: value for name, value in unit.items() if name not in last})
        if closed:  # the interpreter of these tests may lie where only root goes
            stage(list(dict.fromkeys(closed.values())), {path: path for path in closed})
        as_service(last)
        os.setgroups([])
        os.setgid(65533)
        os.setuid(65533)

    environment = {"PATH": os.environ["PATH"], "HOME": "/var/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-c", TRIALS]
    try:
        done = subprocess.run(
            argv, preexec_fn=become, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )
    finally:
        remove_own_group()
    assert done.stdout.splitlines() == ["none bwrap None []", "proxy bwrap None []"], done.stderr


@NEED_ROOT
@pytest.mark.needs("bwrap")
def test_a_protection_that_would_keep_a_sandbox_from_its_proc_is_noticed() -> None:
    """What `ProtectKernelTunables=yes` does to /proc; the same way of trying it finds that it breaks the sandbox."""

    def tunables() -> None:
        as_service({})
        subprocess.run("mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys", shell=True, check=True)

    done = run_bwrap(tunables)
    assert done.returncode != 0
    assert "proc" in done.stderr
