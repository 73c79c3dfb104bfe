"""Set-up with real users, in a root that is this machine's own beneath an overlay: made, checked, broken and undone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.setup.machine import ROOT, SERVICE_MANAGER, copied_source

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="root makes users, on Linux"),
]
BUS = "/srv/bus.git"
ENTER = """
set -eu
mount --make-rprivate /
mount -t overlay overlay -o lowerdir=/,upperdir={top}/upper,workdir={top}/work {top}/root
mount --rbind /proc {top}/root/proc
mount --rbind /dev {top}/root/dev
exec chroot {top}/root /bin/bash -c "$1"
"""


class Overlay:
    """This machine with a layer above it that takes everything a command changes."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for name in ("upper", "work", "root"):
            (top / name).mkdir()
        manager = top / "upper" / "usr" / "local" / "bin" / "stub-systemctl"
        manager.parent.mkdir(parents=True)
        manager.write_text(SERVICE_MANAGER)
        manager.chmod(0o755)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "--mount", "bash", "-c", ENTER.format(top=self.top), "bash", script]
        own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_CONFIG_")}
        return subprocess.run(command, env=own, capture_output=True, text=True, timeout=600, check=False, cwd="/")

    def setup(self, source: Path, *options: str) -> subprocess.CompletedProcess[str]:
        words = [
            *("bash", str(ROOT / "runner-setup" / "setup_gpu.sh"), "--bus", BUS),
            *("--name", "box", "--package", str(source), "--extras", "''", *options),
            *("--constraints", str(ROOT / "constraints.txt"), "--service-manager", "/usr/local/bin/stub-systemctl"),
        ]
        return self.run(" ".join(words))

    def can(self, user: str, command: str) -> bool:
        return self.run(f"runuser -u {user} -- {command}").returncode == 0


@pytest.fixture(params=[(), ("--job-user",)], ids=["one user", "a user for jobs"])
def made(request, tmp_path_factory) -> tuple[Overlay, Path, tuple[str, ...]]:
    overlay = Overlay(tmp_path_factory.mktemp("overlay"))
    source = copied_source(tmp_path_factory.mktemp("source"))
    for folder in (source, *source.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    opened = f"git init --quiet --bare {BUS} && git config --system --add safe.directory {BUS}"
    assert overlay.run(opened).returncode == 0  # the service's user comes to a bus of root's
    done = overlay.setup(source, *request.param)
    assert done.returncode == 0, done.stdout + done.stderr
    return overlay, source, request.param


def test_the_users_are_kept_apart_a_broken_set_up_is_found_and_all_of_it_goes_again(made) -> None:
    overlay, source, options = made
    jobs = bool(options)
    checked = overlay.setup(source, *options, "--check")
    assert checked.returncode == 0, checked.stdout

    daemon = "kakeya-runner"
    owners = overlay.run("stat -c %U /etc/kakeya /etc/kakeya/policy.toml /var/lib/kakeya /var/log/kakeya").stdout
    assert owners.split() == [daemon] * 4
    assert overlay.can(daemon, "cat /etc/kakeya/policy.toml")
    for stranger in ("nobody", *(("kakeya-job",) if jobs else ())):
        for command in ("cat /etc/kakeya/policy.toml", "ls /etc/kakeya", "ls /var/lib/kakeya", "ls /var/log/kakeya"):
            assert not overlay.can(stranger, command), (stranger, command)
        for path in ("/opt/kakeya/bin/python", "/etc/systemd/system/kakeya-run@.service", "/var/lib/kakeya/x"):
            assert not overlay.can(stranger, f"sh -c 'echo >> {path}'"), (stranger, path)
    if jobs:
        assert "\nUser=kakeya-job\n" in overlay.run("cat /etc/systemd/system/kakeya-run@.service").stdout

    for fault, message in (
        ("chmod 644 /etc/kakeya/policy.toml", "readable by others"),
        ("chown nobody /var/lib/kakeya", "state folder"),
        (f"userdel {'kakeya-job' if jobs else 'kakeya-runner'}", "is missing"),
    ):
        assert overlay.run(fault).returncode == 0
        broken = overlay.setup(source, *options, "--check")
        assert (broken.returncode, message in broken.stdout) == (1, True), broken.stdout
        assert overlay.setup(source, *options).returncode == 0
        mended = overlay.setup(source, *options, "--check")
        assert mended.returncode == 0, mended.stdout

    if not jobs:
        file = source / "bridge" / "__init__.py"
        file.write_text(f"{file.read_text()}# of a later version\n")
        older = overlay.setup(source, "--check")
        assert (older.returncode, "bridge/__init__.py" in older.stdout) == (1, True), older.stdout
        assert overlay.setup(source).returncode == 0
        mended = overlay.setup(source, "--check")
        assert mended.returncode == 0, mended.stdout

    assert overlay.run("mkdir -m 700 /shut && cp -L $(which -a python3 | grep ^/usr/bin) /shut/").returncode == 0
    shut = overlay.setup(source, *options, "--python", "/shut/python3", "--check")
    closed_lines = [line for line in shut.stdout.splitlines() if "/shut is closed to others" in line]
    assert (shut.returncode, len(closed_lines)) == (1, 1), shut.stdout
    refused = overlay.setup(source, *options, "--python", "/shut/python3")
    assert (refused.returncode, "/shut is closed to others" in refused.stderr) == (2, True), refused.stderr

    gone = overlay.setup(source, *options, "--uninstall")
    assert gone.returncode == 0, gone.stderr
    for name in ("kakeya-runner", "kakeya-job"):
        assert overlay.run(f"id {name}").returncode != 0
    left = overlay.run(
        "ls -d /etc/kakeya /opt/kakeya /var/lib/kakeya /var/log/kakeya /etc/systemd/system/kakeya*"
    ).stdout
    assert left == ""
    accounts = {"passwd", "group", "shadow", "gshadow"}
    for name in accounts:
        lines = overlay.run(f"cat /etc/{name}").stdout.splitlines()
        assert lines == Path("/etc", name).read_text().splitlines(), name
