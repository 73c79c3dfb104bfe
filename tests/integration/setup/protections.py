"""What systemd does to a service for each setting of our units, done by hand: no service manager runs where tests do.

Each function is called in a forked process that is root in a mount namespace of its own, with the setting's values. The
source is systemd.exec(5) and systemd.resource-control(5).
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from bridge.executor.sandbox import seccomp

Values = list[str]
HARMLESS = frozenset(
    {
        *(
            "ExecStart",
            "StandardInput",
            "StandardOutput",
            "StandardError",
            "User",
            "Group",
            "KillMode",
            "TimeoutStopSec",
        ),
        *(
            "Delegate",
            "TasksMax",
            "CPUWeight",
            "OOMPolicy",
            "UMask",
            "SystemCallErrorNumber",
            "DeviceAllow",
            "RemoveIPC",
        ),
        "DynamicUser",  # which user, and settings that are named besides
    }
)
"""Settings that take nothing from a process that starts a sandbox."""
_HEADERS = (
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/aarch64-linux-gnu/asm/unistd.h"),
    Path("/usr/include/asm-generic/unistd.h"),
)
_SET_ID = 0o6000


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def private_tmp(_values: Values) -> None:
    mount("-t", "tmpfs", "tmpfs", "/tmp")
    mount("-t", "tmpfs", "tmpfs", "/var/tmp")


def read_only(path: str) -> None:
    mount("--bind", path, path)
    mount("-o", "remount,bind,ro", path)


def protect_system(values: Values) -> None:
    """`strict`: everything but /dev, /proc and /sys is read-only."""
    assert values == ["strict"]
    for entry in sorted(Path("/").iterdir()):
        if entry.is_dir() and not entry.is_symlink() and entry.name not in {"dev", "proc", "sys"}:
            read_only(str(entry))


def inaccessible(values: Values) -> None:
    """Covers folders, those with a `-` where they exist."""
    for path in values[0].split():
        if Path(path.removeprefix("-")).is_dir():
            mount("-t", "tmpfs", "-o", "mode=000,ro", "tmpfs", path.removeprefix("-"))


def protect_home(values: Values) -> None:
    assert values == ["read-only"]
    for path in ("/home", "/root"):
        if Path(path).is_dir():
            read_only(path)


def no_modules(_values: Values) -> None:
    """Hides the modules; the system calls are those of @module."""
    if Path("/usr/lib/modules").is_dir():
        mount("-t", "tmpfs", "-o", "mode=000", "tmpfs", "/usr/lib/modules")
    refuse(["@module"])


def device_group(tests: int) -> Path:
    """Return the control group of what these tests, a process id, start: other tests on this machine have their own."""
    return Path("/sys/fs/cgroup/devices") / f"kakeya-test-{tests}"


def closed_devices(_values: Values) -> None:
    """Allows the devices that `DevicePolicy=closed` and ProtectClock= leave: /dev/null and its like, terminals."""
    group = device_group(os.getppid())
    if not group.parent.is_dir():
        return  # version 2 has no file for it; the devices bwrap opens are the same ones
    group.mkdir(exist_ok=True)
    (group / "devices.deny").write_text("a")
    for device in ("c 1:3", "c 1:5", "c 1:7", "c 1:8", "c 1:9", "c 5:0", "c 5:2", "c 136:*"):
        (group / "devices.allow").write_text(f"{device} rwm")
    (group / "cgroup.procs").write_text("0")


def no_new_privileges(_values: Values) -> None:
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)


def drop_bounding_set(values: Values) -> None:
    assert values == [""]
    for number in range(64):
        ctypes.CDLL(None).prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP; past the last one it fails


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the numbers of system calls and of systemd's groups of them."""
    header = next(path for path in _HEADERS if path.exists()).read_text()
    table = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", header)}
    call_names: set[str] = set()
    for name in names:
        if name.startswith("@"):
            listing = subprocess.run(
                ["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True
            )
            inner = [line.strip() for line in listing.stdout.splitlines()[1:]]
            call_names |= {entry for entry in inner if entry and not entry.startswith(("#", "@"))}
        else:
            call_names.add(name)
    return sorted(table[name] for name in call_names if name in table)


def load(code: bytes) -> None:
    """Load a filter of system calls: PR_SET_SECCOMP with SECCOMP_MODE_FILTER."""
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    no_new_privileges([])
    assert ctypes.CDLL(None, use_errno=True).prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0


def refuse(names: Iterable[str]) -> None:
    """Refuse system calls with EPERM."""
    code = seccomp._instruction(0x20, 0)
    for number in numbers_of(names):
        code += seccomp._instruction(0x15, number, 0, 1) + seccomp._refuse(1)
    load(code + seccomp._instruction(0x06, 0x7FFF0000))


def refuse_when(names: Iterable[str], argument: int, any_of: int) -> None:
    """Refuse system calls where an argument has one of some bits set."""
    body = seccomp._argument(argument) + seccomp._instruction(0x45, any_of, 0, 1) + seccomp._refuse(1)
    code = seccomp._instruction(0x20, 0)
    for number in numbers_of(names):
        code += seccomp._when_call(number, body)
    load(code + seccomp._instruction(0x06, 0x7FFF0000))


def filtered(values: Values) -> None:
    (value,) = values
    assert value.startswith("~")
    refuse(value.removeprefix("~").split())


def families(values: Values) -> None:
    """Refuse sockets of other families than those named."""
    family_numbers = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
    allowed = [family_numbers[name] for name in values[0].split()]
    jumps = b"".join(
        seccomp._instruction(0x15, family, len(allowed) - index, 0) for index, family in enumerate(allowed)
    )
    (number,) = numbers_of(["socket"])
    code = seccomp._instruction(0x20, 0) + seccomp._when_call(
        number, seccomp._argument(0) + jumps + seccomp._refuse(97)
    )
    load(code + seccomp._instruction(0x06, 0x7FFF0000))


def native(_values: Values) -> None:
    """Kill what calls by another convention than this machine's own."""
    audit = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[os.uname().machine]
    code = seccomp._instruction(0x20, 4) + seccomp._instruction(0x15, audit, 1, 0)
    load(code + seccomp._instruction(0x06, 0x80000000) + seccomp._instruction(0x06, 0x7FFF0000))


def no_set_id(_values: Values) -> None:
    refuse_when(["chmod", "fchmod", "mkdir", "mknod"], 1, _SET_ID)
    refuse_when(["fchmodat", "mkdirat", "mknodat"], 2, _SET_ID)


def no_realtime(_values: Values) -> None:
    refuse_when(["sched_setscheduler"], 1, 0x3)


def no_personality(_values: Values) -> None:
    refuse(["personality"])


PROTECTIONS: dict[str, Callable[[Values], None]] = {
    "ProtectSystem": protect_system,
    "ProtectHome": protect_home,
    "InaccessiblePaths": inaccessible,
    "PrivateTmp": private_tmp,
    "DevicePolicy": closed_devices,
    "ProtectKernelModules": no_modules,
    "ProtectClock": lambda _values: refuse(["@clock"]),
    "CapabilityBoundingSet": drop_bounding_set,
    "NoNewPrivileges": no_new_privileges,
    "RestrictSUIDSGID": no_set_id,
    "RestrictRealtime": no_realtime,
    "LockPersonality": no_personality,
    "RestrictAddressFamilies": families,
    "SystemCallArchitectures": native,
    "SystemCallFilter": filtered,
}
"""Each setting with what it does, in the order a service takes them on."""
