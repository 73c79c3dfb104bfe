"""The units that set-up writes: their text, what systemd says of them, and a sandbox under each protection."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.setup.machine import ROOT, Host
from tests.integration.setup.protections import HARMLESS, PROTECTIONS

GOLDEN = Path(__file__).parent / "golden"
KINDS = {
    "linux-unit.txt": ["--create-bus"],
    "linux-job-user-unit.txt": ["--job-user"],
    "linux-local-bus-unit.txt": ["--bus", "/srv/bus.git#0123"],
}
EXPOSURE_MAX = 4.5  # of a unit whose processes start sandboxes


def unit_of(tmp_path: Path, options: list[str]) -> str:
    """Return the unit as a dry run shows it."""
    done = Host(tmp_path).setup("--dry-run", *options)
    assert done.returncode == 0, done.stderr
    shown = done.stdout[done.stdout.index("write service unit") :].splitlines()[1:]
    lines = [line.removeprefix("       | ") for line in shown if line.startswith("       |")]
    return "\n".join(line.removeprefix("       |") for line in lines) + "\n"


def settings(unit: str) -> dict[str, list[str]]:
    """Return the settings of the [Service] section, each with its values in order."""
    found: dict[str, list[str]] = {}
    for line in unit.partition("[Service]")[2].partition("[Install]")[0].splitlines():
        name, mark, value = line.partition("=")
        if mark:
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("golden", KINDS)
def test_the_unit_is_the_recorded_one(golden: str, tmp_path) -> None:
    """`UPDATE_GOLDEN=1 pytest` writes it anew."""
    text = unit_of(tmp_path, KINDS[golden]).replace(str(tmp_path), "TMP")
    text = re.sub(r"^DeviceAllow=.*\n", "", text, flags=re.MULTILINE)  # what this machine has
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / golden).write_text(text)
    assert text == (GOLDEN / golden).read_text()


@pytest.mark.parametrize("options", [[], ["--job-user"]], ids=["own user", "job user"])
def test_systemd_finds_the_unit_little_exposed(tmp_path, missing, options) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("systemd", "systemd-analyze is not installed")
    folder = tmp_path / "offline" / "etc" / "systemd" / "system"
    folder.mkdir(parents=True)
    (folder / "kakeya-runner.service").write_text(unit_of(tmp_path / "host", options))
    command = ["systemd-analyze", "security", "--offline=yes", f"--root={tmp_path / 'offline'}", "--no-pager"]
    done = subprocess.run([*command, "kakeya-runner.service"], capture_output=True, text=True, timeout=60, check=False)
    level = re.search(r"Overall exposure level for kakeya-runner\.service: ([\d.]+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    # The daemon of a job user is root, to become that user; its runs are not.
    assert float(level[1]) <= (EXPOSURE_MAX if not options else 6.5), done.stdout


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
            BWRAP, preexec_fn=become, capture_output=True, text=True, timeout=60, check=False, cwd="/"
        )
    finally:
        for group in Path("/sys/fs/cgroup/devices").glob("kakeya-test-*"):
            group.rmdir()


@NEED_ROOT
def test_every_setting_of_the_units_is_tried_or_known_to_be_harmless(tmp_path) -> None:
    for number, options in enumerate(KINDS.values()):
        named = set(settings(unit_of(tmp_path / str(number), options)))
        assert named <= set(PROTECTIONS) | HARMLESS, named - set(PROTECTIONS) - HARMLESS


@NEED_ROOT
@pytest.mark.parametrize("name", [*PROTECTIONS, "all together"])
def test_a_sandbox_gets_its_own_proc_under_each_protection_of_the_unit(tmp_path, name: str) -> None:
    unit = settings((GOLDEN / "linux-unit.txt").read_text())
    unit["ReadWritePaths"] = [str(tmp_path)]
    chosen = unit if name == "all together" else {name: unit[name]}
    done = run_bwrap(lambda: as_service(chosen))
    assert done.returncode == 0, done.stderr


@NEED_ROOT
def test_a_protection_that_would_keep_a_sandbox_from_its_proc_is_noticed() -> None:
    """What `ProtectKernelTunables=yes` does to /proc; the same way of trying it finds that it breaks the sandbox."""

    def tunables() -> None:
        as_service({})
        subprocess.run("mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys", shell=True, check=True)

    done = run_bwrap(tunables)
    assert done.returncode != 0
    assert "proc" in done.stderr


ONE_TRIAL = """
from bridge.executor.local import LocalExecutor
from bridge.system.clock import SystemClock
applied = LocalExecutor(SystemClock()).sandbox()
print(applied.kind, applied.uid, applied.reason)
"""


@NEED_ROOT
def test_root_s_daemon_confines_runs_with_the_few_capabilities_it_keeps() -> None:
    (kept,) = settings((GOLDEN / "linux-job-user-unit.txt").read_text())["CapabilityBoundingSet"]
    names = ",".join(f"+{one.removeprefix('CAP_').lower()}" for one in kept.split())
    command = ["setpriv", f"--bounding-set=-all,{names}", "--no-new-privs", sys.executable, "-c", ONE_TRIAL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert done.stdout.split()[:2] == ["bwrap", "65533"], done.stdout + done.stderr
