"""Probes for the kernel's doors: system calls, namespaces, settings, keys, other calling conventions."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pty
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from harness import LIBC, LINUX_X86, TARGETS, answered, call, each, libc, probe

CALLS = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438,
    "process_madvise": 440, "perf_event_open": 298, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "add_key": 248, "request_key": 249, "keyctl": 250,
    "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
    "open_tree_attr": 467, "quotactl_fd": 443, "open_by_handle_at": 304, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "create_module": 174, "query_module": 178, "get_kernel_syms": 177, "kexec_load": 246,
    "kexec_file_load": 320, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179,
    "syslog": 103, "settimeofday": 164, "clock_settime": 227, "fanotify_init": 300, "vhangup": 153,
    "move_pages": 279, "migrate_pages": 256, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "clone3": 435,

        "nfsservctl": 180,
        "uselib": 134,
        "_sysctl": 156,
        "lookup_dcookie": 212,
        "sethostname": 170,
        "setdomainname": 171
    ,
}  # fmt: skip
"""Numbers of x86-64; none of them may come to the kernel's own checks of its arguments."""
NAMESPACES = {
    "time": 0x80, "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000, "user and mount": 0x10020000, "user and net": 0x50000000,
}  # fmt: skip
KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time")
if LINUX_X86:

    @each("call {}", CALLS.items())
    def system_call(number: int) -> str | None:
        return answered(lambda: call(number, 0, 0, 0, 0, 0, 0))

    @each("clone into a new {} namespace", NAMESPACES.items())
    def clone(flag: int) -> str | None:
        pid = call(56, flag | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        return f"made process {pid}"

    @each("call {} by another calling convention", {"getpid": 20, "ptrace": 26, "mount": 21, "bpf": 357}.items())
    def old_entry(number: int) -> str:
        """Enter the kernel by the 32-bit gate: mov eax, NUMBER; int 0x80; ret."""
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8" + number.to_bytes(4, "little") + b"\xcd\x80\xc3")
        entry = ctypes.addressof(ctypes.c_char.from_buffer(code))
        return f"the kernel answered {ctypes.CFUNCTYPE(ctypes.c_int)(entry)()}"

    @each("call {} by its x32 number", {"ptrace": 521, "mount": 165, "unshare": 272, "bpf": 321, "keyctl": 250}.items())
    def x32(number: int) -> str | None:
        return answered(lambda: call(0x40000000 + number, 0, 0, 0, 0, 0))


@each("unshare the {} namespace", NAMESPACES.items())
def unshare(flag: int) -> str:
    libc("unshare", flag)
    return "unshared"


@each("join the {} namespace of the first process", KINDS)
def join(kind: str) -> str:
    libc("setns", os.open(f"/proc/1/ns/{kind}", os.O_RDONLY), 0)
    return "joined"


@each("be in the host's {} namespace", KINDS[:7])
def same(kind: str) -> str | None:
    own = os.stat(f"/proc/self/ns/{kind}").st_ino
    return f"{kind}:[{own}]" if own == TARGETS["namespaces"][kind] else None


CAPABILITIES = 64
THREE_SETS = {"CapEff": 0, "CapPrm": 1, "CapInh": 2}
PR_GET_SECCOMP, PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS, PR_CAP_AMBIENT, IS_SET = 21, 23, 39, 47, 1


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    return libc("prctl", option, first, second, 0, 0)


@each("hold a capability in {}", THREE_SETS.items())
def capability(place: int) -> str | None:
    """Ask the kernel, not /proc: a sandbox without mounts shows no process that of its children."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # the third version; this process
    sets = (ctypes.c_uint32 * 6)()
    libc("capget", header, sets)
    capabilities = sets[place] | sets[3 + place] << 32
    return hex(capabilities) if capabilities else None


@each("hold a capability in {}", {"CapBnd": (PR_CAPBSET_READ,), "CapAmb": (PR_CAP_AMBIENT, IS_SET)}.items())
def bounding_or_ambient(what: tuple[int, ...]) -> str | None:
    """The first bounds what executing gains: nothing, with no new privileges. A sandbox with mounts empties it, too."""
    if what[0] == PR_CAPBSET_READ and not TARGETS["mounts"] and prctl(PR_GET_NO_NEW_PRIVS) == 1:
        return None
    return str([number for number in range(CAPABILITIES) if LIBC.prctl(*what, number, 0, 0, 0) == 1] or "") or None


@probe("gain privileges by executing a program")
def new_privileges() -> str | None:
    return None if prctl(PR_GET_NO_NEW_PRIVS) == 1 else "no_new_privs is not set"


@probe("be without a filter of system calls")
def unfiltered() -> str | None:
    return None if prctl(PR_GET_SECCOMP) == 2 else "seccomp is off"


@each("become {}", {"root": 0, "nobody": 65534, "the next user": os.getuid() + 1}.items())
def become(uid: int) -> str:
    os.setuid(uid)
    return f"became {os.getuid()}"


@each("become group {}", (0, 6, 27, 65534))
def become_group(gid: int) -> str:
    os.setgid(gid)
    return f"became {os.getgid()}"


@probe("join further groups")
def groups() -> str:
    os.setgroups([0])
    return str(os.getgroups())


@each(
    "write {} of its own",
    {"uid_map": "0 0 1", "gid_map": "0 0 1", "setgroups": "allow", "oom_score_adj": "-1000"}.items(),
)
def own_setting(text: str) -> str:
    name = {"0 0 1": "uid_map", "allow": "setgroups", "-1000": "oom_score_adj"}[text]
    Path("/proc/self", name).write_text(text)
    return "written"


def files_below(top: str) -> Iterator[str]:
    """Yield files below a folder of /proc or /sys, those of processes apart."""
    for folder, names, files in os.walk(top):
        if top == "/proc" and folder == top:
            names[:] = [name for name in names if not name.isdigit() and name not in {"self", "thread-self"}]
        yield from (os.path.join(folder, name) for name in files)


def opened_below(top: str) -> tuple[int, list[str]]:
    """Return how many files were tried, and which could be opened for writing; none is written to."""
    tried, got = 0, []
    for path in files_below(top):
        tried += 1
        for mode in (os.O_WRONLY, os.O_RDWR):
            try:
                os.close(os.open(path, mode | os.O_NONBLOCK | os.O_NOFOLLOW))
            except OSError:
                continue
            got.append(path)
    return tried, got


TOPS = ("/proc", "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/sys", "/sys/devices", "/sys/fs/cgroup")


@each("open a file below {} for writing", TOPS)
def writable(top: str) -> str | None:
    if not os.path.isdir(top):
        os.close(os.open(top, os.O_WRONLY))
        return top
    got = opened_below(top)[1]
    return f"{len(got)}: {got[:3]}" if got else None


@each("open a file of the host's /proc or /sys that is {} for writing", ("in the first half", "in the second half"))
def listed(which: str) -> str | None:
    """Try every path that was writable for root on the host, whether or not it can be listed here."""
    paths = TARGETS["kernel_files"]
    half = len(paths) // 2
    got = []
    for path in paths[:half] if "first" in which else paths[half:]:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        got.append(path)
    return f"{len(got)}: {got[:3]}" if got else None


if TARGETS["mounts"]:  # elsewhere it sees the host's own; whether it may write there is tried above

    @each("see {} without its being read-only", ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/sysrq-trigger", "/sys"))
    def not_read_only(path: str) -> str | None:
        return None if os.statvfs(path).f_flag & os.ST_RDONLY else "it is not read-only"


@each("read {}", ("kcore", "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo", "timer_list"))
def kernel_file(name: str) -> str | None:
    with open(f"/proc/{name}", "rb", buffering=0) as file:
        head = file.read(64)
    return f"{len(head)} bytes" if head else None


@probe("see an address of the kernel")
def addresses() -> str | None:
    first = Path("/proc/kallsyms").read_text().split(maxsplit=1)[0]
    return first if int(first, 16) else None


@probe("see a key of the host's user")
def keys() -> str | None:
    lines = [line for line in Path("/proc/keys").read_text().splitlines() if TARGETS["token"] in line]
    return lines[0] if lines else None


@probe("attach the host's shared memory")
def shared_memory() -> str:
    LIBC.shmat.restype = ctypes.c_void_p
    return f"attached segment {libc('shmget', TARGETS['ipc_key'], 1, 0)}"


@probe("reach the host's semaphores")
def semaphores() -> str:
    return str(libc("semget", TARGETS["ipc_key"], 1, 0))


@probe("reach the host's message queue")
def messages() -> str:
    return str(libc("msgget", TARGETS["ipc_key"], 0))


@probe("attach the host's shared memory by its number")
def memory_by_number() -> str | None:
    LIBC.shmat.restype = ctypes.c_void_p
    address = LIBC.shmat(TARGETS["ipc_numbers"][0], None, 0o10000)  # SHM_RDONLY
    return None if address == ctypes.c_void_p(-1).value else f"attached at {address:x}"


@probe("reach the host's semaphores by their number")
def semaphores_by_number() -> str:
    return str(libc("semctl", TARGETS["ipc_numbers"][1], 0, 12))  # GETVAL


@probe("reach the host's message queue by its number")
def messages_by_number() -> str:
    return str(libc("msgctl", TARGETS["ipc_numbers"][2], 2, ctypes.create_string_buffer(256)))  # IPC_STAT


if not TARGETS["mounts"]:  # elsewhere the mounts that it sees are its own

    @each("see the host's mounts in {}", ("mountinfo", "mounts", "mountstats"))
    def mounts(name: str) -> str | None:
        for process in ("self", os.getppid(), f"{os.getppid()}/task/{os.getppid()}"):
            try:
                return Path("/proc", str(process), name).read_text()[:60]
            except OSError:
                continue
        return None

    @probe("list the host's mounts")
    def list_mounts() -> str:
        request = (ctypes.c_uint64 * 3)(24, 0xFFFFFFFFFFFFFFFF, 0)  # struct mnt_id_req of the root
        return f"{call(458, request, (ctypes.c_uint64 * 64)(), 64, 0)} mounts"


@probe("open the host's named shared memory")
def named_memory() -> str:
    return str(libc("shm_open", f"/{TARGETS['token']}-named".encode(), os.O_RDWR, 0o600))


@probe("open the host's named queue")
def named_queue() -> str:
    return str(libc("mq_open", f"/{TARGETS['token']}".encode(), os.O_RDWR))


@probe("change the clock")
def clock() -> str:
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "set"


@probe("adjust the clock")
def adjust() -> str:
    buffer = ctypes.create_string_buffer(256)
    buffer[0] = 2  # ADJ_FREQUENCY
    return str(libc("adjtimex", buffer))


@each("take real-time scheduling {}", {"first in, first out": 1, "round robin": 2, "deadline": 6}.items())
def realtime(policy: int) -> str:
    os.sched_setscheduler(0, policy, os.sched_param(1))
    return "taken"


@probe("raise its own priority")
def nice() -> str:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    return "raised"


LIMITS = {"processes": 6, "open files": 7, "core files": 4, "file size": 1}


@each("raise its limit of {}", LIMITS.items())
def raise_limit(which: int) -> str:
    hard = resource.getrlimit(which)[1]
    if hard == resource.RLIM_INFINITY:
        return "there is none"
    try:
        resource.setrlimit(which, (hard + 1, hard + 1))
    except ValueError as error:  # how Python says EPERM here
        raise PermissionError(str(error)) from error
    return "raised"


@probe("have a crash start a program of the host")
def core_dump() -> str | None:
    """A core pattern with `|` starts a program as root whatever the limit is, but for 1 (Linux, fs/coredump.c)."""
    soft = resource.getrlimit(resource.RLIMIT_CORE)[0]
    return None if soft == 1 else f"the limit of core files is {soft}; only 1 keeps a piped core pattern from running"


@each("have the terminal take {}", {"a typed character": 0x5412, "a console command": 0x541C}.items())
def terminal(request: int) -> str:
    fcntl.ioctl(pty.openpty()[1], request, b"x")
    return "taken"


@probe("have a controlling terminal")
def controlling() -> str:
    return str(os.open("/dev/tty", os.O_RDWR))
