"""Probes for files, folders and device nodes of the host."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from harness import LINUX_X86, TARGETS, call, each, libc, probe

SECRET = TARGETS["secret"]
HIDDEN = TARGETS["hidden"]
"""Name → path of a host's file that holds the secret, or of a folder that holds such a file."""
KEY = HIDDEN["the runner's key"]
SHOWN = Path(TARGETS["models"])
"""A folder that the run may read."""
ROOTS = ("/proc/self/root", "/proc/1/root", "/proc/thread-self/root", "/proc/self/cwd/../../../../../..", "/dev/../..")
FOLDERS = (
    *("/root", "/home", "/boot", "/var", "/srv", "/opt", "/run", "/mnt", "/media", "/lost+found", "/etc/ssh"),
    *("/etc/sudoers.d", "/var/lib", "/var/log", "/var/spool/cron", "/run/user", "/var/tmp", "/usr/src", "/etc/systemd"),
)
DEVICES = (
    *("mem", "kmem", "port", "kmsg", "kvm", "fuse", "vsock", "vhost-net", "vhost-vsock", "loop-control", "loop0"),
    *("net/tun", "uinput", "rtc0", "watchdog", "hpet", "cpu/0/msr", "nvram", "snapshot", "btrfs-control", "console"),
    *("userfaultfd", "tty0", "tty1", "ttyS0", "vda", "sda", "nvme0n1", "dm-0", "autofs", "cuse", "mapper/control"),
    *("initctl", "log", "hwrng", "tpm0", "bus/usb", "dri/card0", "input/event0", "mqueue", "hugepages", "sgx_enclave"),
)
NODES = {
    "memory (1:1)": (stat.S_IFCHR, 1, 1),
    "kernel log (1:11)": (stat.S_IFCHR, 1, 11),
    "ports (1:4)": (stat.S_IFCHR, 1, 4),
    "disk (8:0)": (stat.S_IFBLK, 8, 0),
    "virtual disk (254:0)": (stat.S_IFBLK, 254, 0),
    "loop (7:0)": (stat.S_IFBLK, 7, 0),
    "FUSE (10:229)": (stat.S_IFCHR, 10, 229),
    "KVM (10:232)": (stat.S_IFCHR, 10, 232),
    "tun (10:200)": (stat.S_IFCHR, 10, 200),
}
PLACES = {
    "/": "/",
    "/etc": "/etc",
    "/usr/lib": "/usr/lib",
    "/lib": "/lib",
    "/dev": "/dev",
    "/proc": "/proc",
    "/sys": "/sys",
    "the interpreter's folder": os.path.dirname(os.path.realpath(TARGETS["interpreter"])),
    "packages": TARGETS["packages"],
    "the declared folder": str(SHOWN),
    "the run's parent folder": TARGETS["parent"],
    "another run": TARGETS["other_run"],
}


def secret_in(path: str) -> str | None:
    """Return where the secret was read: in a file, or in any file directly below a folder."""
    paths = [path]
    if os.path.isdir(path):
        paths = [entry for entry in (os.path.join(path, name) for name in os.listdir(path)) if os.path.isfile(entry)]
    for entry in paths:
        with open(entry, "rb") as file:
            if SECRET.encode() in file.read(1 << 20):
                return f"read {entry}"
    return None


@each("read {} by its path", HIDDEN.items())
def by_path(path: str) -> str | None:
    return secret_in(path)


@each("see {} of a file of the host", {"the size": "st_size", "the time": "st_mtime", "the owner": "st_uid"}.items())
def fact_of_file(name: str) -> str | None:
    facts = os.stat(KEY)
    return f"{name} {getattr(facts, name)}" if facts.st_ino == TARGETS["key_inode"] else None


@probe("see where a link of the host leads")
def link_target() -> str:
    return os.readlink(TARGETS["link"])


@each("read an attribute of a file of the host {}", ("by its name", "by an open handle"))
def attribute(way: str) -> str | None:
    place = KEY if way == "by its name" else os.open(KEY, os.O_RDONLY)
    return "read it" if os.getxattr(place, "user.kakeya") == SECRET.encode() else None


@probe("list the attributes of a file of the host")
def attributes() -> str | None:
    return str(os.listxattr(KEY)) if "user.kakeya" in os.listxattr(KEY) else None


@each("read the runner's key by {}", ROOTS)
def by_root(root: str) -> str | None:
    return secret_in(root + KEY)


@probe("read the runner's key by a link in the report folder")
def by_link() -> str | None:
    link = os.path.join(os.environ["TMPDIR"], "link")
    os.symlink(KEY, link)
    return secret_in(link)


@probe("link the runner's key into the run's folder")
def by_hard_link() -> str | None:
    name = os.path.join(os.environ["TMPDIR"], "hard")
    os.link(KEY, name)
    return secret_in(name)


@probe("read the runner's key relative to an open folder")
def by_descriptor() -> str | None:
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    up = "/".join([".."] * 30)
    descriptor = os.open(up + KEY, os.O_RDONLY, dir_fd=folder)
    return "read it" if SECRET.encode() in os.read(descriptor, 4096) else None


@probe("read the runner's key by descriptors of the sandbox's first process")
def by_first_process() -> str | None:
    for number in os.listdir("/proc/1/fd"):
        secret = secret_in(f"/proc/1/fd/{number}{KEY}")
        if secret:
            return secret
    return None


@probe("open the runner's key by its file handle")
def by_handle() -> str | None:
    if not LINUX_X86:
        return None
    handle = struct.pack("=Ii", 8, 1) + struct.pack("=II", TARGETS["key_inode"], 0)
    return str(call(304, os.open("/", os.O_RDONLY), ctypes.create_string_buffer(handle), 0))


@each("list {} of the host", FOLDERS)
def listing(path: str) -> str | None:
    own = TARGETS["own_paths"]
    names = {name for name in os.listdir(path) if not any(p.startswith(os.path.join(path, name)) for p in own)}
    return f"saw {sorted(names)[:5]}" if names else None


@each("open the device /dev/{}", DEVICES)
def device(name: str) -> str | None:
    os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
    return f"opened /dev/{name}"


@each("make a device node for {}", NODES.items())
def node(kind: tuple[int, int, int]) -> str | None:
    path = os.path.join(os.environ["TMPDIR"], "node")
    os.mknod(path, kind[0] | 0o600, os.makedev(kind[1], kind[2]))
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    return "made and opened it"


@each("make a file in {}", PLACES.items())
def create(folder: str) -> str | None:
    os.close(os.open(os.path.join(folder, TARGETS["token"]), os.O_WRONLY | os.O_CREAT, 0o600))
    return f"made a file in {folder}"


def lease(path: str, kind: int) -> None:
    """Hold writers of a file up for as long as the kernel lets a lease: F_SETLEASE with F_RDLCK or F_WRLCK."""
    fcntl.fcntl(os.open(path, os.O_RDONLY), 1024, kind)


def flags(path: str) -> None:
    """Set the immutable flag of a file: FS_IOC_SETFLAGS."""
    fcntl.ioctl(os.open(path, os.O_RDONLY), 0x40086602, (0x10).to_bytes(8, "little"))


CHANGES = {
    "write to": lambda path: os.close(os.open(path, os.O_WRONLY)),
    "truncate": lambda path: os.truncate(path, 0),
    "remove": os.unlink,
    "rename": lambda path: os.rename(path, path + "x"),
    "change the mode of": lambda path: os.chmod(path, 0o666),
    "change the owner of": lambda path: os.chown(path, os.getuid(), os.getgid()),
    "change the time of": lambda path: os.utime(path, (1, 1)),
    "put an attribute on": lambda path: os.setxattr(path, "user.kakeya", b"x"),
    "take a lease on": lambda path: lease(path, 0),
    "watch by a lease for writing": lambda path: lease(path, 1),
    "link away": lambda path: os.link(path, os.path.join(os.environ["TMPDIR"], "away")),
    "mark immutable": flags,
}


@each("{} a file of the host that the run may read", CHANGES.items())
def change(action: object) -> str:
    action(str(SHOWN / "weights"))  # type: ignore[operator]
    return "done"


@each("read {} below the declared folder", TARGETS["credentials"])
def credential(name: str) -> str | None:
    return secret_in(str(SHOWN / name))


@each("write {} through its memory map", ("the interpreter", "a declared file"))
def mapped(which: str) -> str:
    path = os.path.realpath(TARGETS["interpreter"]) if which == "the interpreter" else str(SHOWN / "weights")
    descriptor = os.open(path, os.O_RDONLY)
    mmap.mmap(descriptor, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)
    return f"mapped {path}"


@each(
    "reopen {} for writing by its descriptor", ("the interpreter", "a declared file", "the root", "the first program")
)
def reopened(which: str) -> str:
    paths = {
        "the interpreter": os.path.realpath(TARGETS["interpreter"]),
        "the root": "/",
        "the first program": "/proc/1/exe",
    }
    descriptor = os.open(paths.get(which, str(SHOWN / "weights")), os.O_RDONLY)
    os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR))
    return "opened"


def folders_above() -> Iterator[str]:
    """Yield the folders above the run's own."""
    yield from (str(path) for path in Path(TARGETS["parent"]).parents if str(path) != "/")


@probe("see more of the folders above the run than the way to it")
def above() -> str | None:
    for folder in folders_above():
        names = set(os.listdir(folder)) - {
            Path(p).relative_to(folder).parts[0]
            for p in TARGETS["own_paths"]
            if Path(p).is_relative_to(folder) and p != folder
        }
        if names:
            return f"saw {sorted(names)[:5]} in {folder}"
    return None


@each("leave a file in {} for the next run", ("/tmp", "/dev/shm", "/var/tmp", "/run"))
def leave(folder: str) -> None:
    """What is left is looked for from outside."""
    with open(os.path.join(folder, TARGETS["token"]), "w") as file:
        file.write("left")


@probe("remount what is read-only")
def remount() -> str | None:
    for path in ("/", "/usr/lib", str(SHOWN), "/proc/sys"):
        libc("mount", None, path.encode(), None, 0x20 | 0x1000, None)
        return path
    return None
