from __future__ import annotations

from pathlib import Path

import pytest

from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox import bwrap_options as bwrap
from bridge.executor.sandbox.allowlist import AllowList

RUN = Path("/data/run")
DIRECTORY = RunDirectory(RUN, RUN / "work", RUN / "out", RUN / "home", RUN / "tmp")
ALLOW = AllowList(
    links={"/lib": "usr/lib"}, system=("/usr/lib", "/etc/localtime"), declared=("/opt/venv", "/models/tiny")
)


def scene(**changes) -> bwrap.Scene:
    fields = {
        "abilities": bwrap.Abilities("/usr/bin/bwrap", disable_userns=True, sized_tmpfs=True),
        "allow": ALLOW,
        "directory": DIRECTORY,
        "environment": {"B": "2", "A": "1"},
        "network": False,
        "devices": ("/dev/nvidia0",),
        "shm_bytes": 1024,
        "covered": ("/proc/keys",),
    }
    return bwrap.Scene(**(fields | changes))


DESCRIPTORS = bwrap.Descriptors(seccomp=10, passwd=11, group=12, hosts=13, status=14)

GOLDEN = """
--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --unshare-net --disable-userns
--die-with-parent --new-session --cap-drop ALL --hostname sandbox --json-status-fd 14 --seccomp 10
--symlink usr/lib /lib
--proc /proc --ro-bind-try /proc/sys /proc/sys --ro-bind-try /proc/sysrq-trigger /proc/sysrq-trigger
--ro-bind-try /proc/irq /proc/irq --ro-bind-try /proc/bus /proc/bus --ro-bind-try /proc/pressure /proc/pressure
--ro-bind-try /proc/fs /proc/fs --ro-bind-try /proc/mtrr /proc/mtrr --ro-bind-try /proc/acpi /proc/acpi
--ro-bind-try /proc/scsi /proc/scsi --ro-bind-try /proc/driver /proc/driver --ro-bind-try /proc/asound /proc/asound
--ro-bind-try /proc/timer_stats /proc/timer_stats --ro-bind-try /proc/latency_stats /proc/latency_stats
--ro-bind /dev/null /proc/keys --dev /dev
--size 1024 --tmpfs /dev/shm --size 67108864 --tmpfs /tmp
--ro-bind /usr/lib /usr/lib --ro-bind /etc/localtime /etc/localtime
--ro-bind /opt/venv /opt/venv --ro-bind /models/tiny /models/tiny
--ro-bind-data 11 /etc/passwd --ro-bind-data 12 /etc/group --ro-bind-data 13 /etc/hosts
--dev-bind /dev/nvidia0 /dev/nvidia0
--bind /data/run/work /data/run/work --bind /data/run/out /data/run/out
--bind /data/run/home /data/run/home --bind /data/run/tmp /tmp/run
--remount-ro /dev --remount-ro /
--clearenv --setenv A 1 --setenv B 2 --chdir /data/run/work
"""


def test_the_command_line_is_the_golden_one():
    assert bwrap.options(scene(), DESCRIPTORS) == GOLDEN.split()


def test_nothing_ever_binds_the_root_and_only_run_folders_are_writable():
    options = bwrap.options(scene(), DESCRIPTORS)
    binds = [options[index + 1] for index, option in enumerate(options) if option in ("--bind", "--ro-bind")]
    writable = [options[index + 2] for index, option in enumerate(options) if option == "--bind"]

    assert "/" not in binds
    assert writable == ["/data/run/work", "/data/run/out", "/data/run/home", "/tmp/run"]


def test_a_network_shares_the_hosts_and_leaves_its_hosts_file_to_the_allow_list():
    descriptors = bwrap.Descriptors(seccomp=10, passwd=11, group=12, hosts=None, status=14)
    options = bwrap.options(scene(network="host"), descriptors)

    assert "--unshare-net" not in options
    assert "/etc/hosts" not in options
    assert "net" not in bwrap.namespaces("host")
    assert "net" in bwrap.namespaces(("data.example.org",))


def test_staged_paths_are_mounted_from_their_stage_to_their_own_place():
    options = bwrap.options(scene(staged={"/opt/venv": "/mnt/0", "/data/run/work": "/mnt/1"}), DESCRIPTORS)
    text = " ".join(options)

    assert "--ro-bind /mnt/0 /opt/venv" in text
    assert "--bind /mnt/1 /data/run/work" in text
    assert "--chdir /data/run/work" in text


@pytest.mark.parametrize(
    ("text", "disable", "sized"),
    [
        ("--disable-userns  Disable\n--size BYTES  Set size", True, True),
        ("--size BYTES  Set size", False, True),
        ("--tmpfs DEST", False, False),
    ],
)
def test_an_older_bubblewrap_gets_only_what_it_knows(text, disable, sized):
    able = bwrap.parse_abilities("/usr/bin/bwrap", text)
    options = bwrap.options(scene(abilities=able), DESCRIPTORS)

    assert ("--disable-userns" in options, "--size" in options) == (disable, sized)


def test_the_users_table_holds_only_the_run():
    assert bwrap.passwd(1000, 100, "/h") == b"run:x:1000:100:run:/h:/usr/sbin/nologin\n"
    assert bwrap.group(100) == b"run:x:100:\n"
