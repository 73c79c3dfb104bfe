"""Build the system call filter of the sandbox as classic BPF for `bwrap --seccomp`.

It refuses what no measurement needs and what escapes have been built from: tracing and reading other processes, new
namespaces and mounts, kernel keys, BPF, io_uring, userfaultfd, exotic socket families (a VM's vsock is not in any
network namespace), pushing characters into a terminal, leases on files; and System V shared memory, semaphores and
queues, whose memory counts for no process. Everything else passes: the file system and network allow-lists are the
namespaces' work. Knows nothing about bubblewrap. An architecture without a table gets no filter, and the caller says
so.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import Final

# From linux/bpf_common.h, linux/seccomp.h, linux/audit.h.
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL: Final = 0x15
_JUMP_GREATER_EQUAL: Final = 0x35
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_KILL_PROCESS: Final = 0x80000000
_OFFSET_NUMBER: Final = 0
_OFFSET_ARCH: Final = 4
_OFFSET_ARGS: Final = 16

# CLONE_NEWTIME | NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
_NEW_NAMESPACES: Final = 0x80 | 0x20000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_SOCKET_FAMILIES: Final = (1, 2, 10, 16)  # unix, inet, inet6, netlink
_SET_LEASE: Final = 1024  # F_SETLEASE: a file's owner may keep its writers waiting, here those of the host
_TERMINAL_REQUESTS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX


@dataclass(frozen=True)
class Table:
    """One architecture's audit number and system call numbers.

    Attributes:
        foreign_from: numbers from here on belong to another calling convention, or None.
    """

    audit: int
    foreign_from: int | None
    refused: dict[str, int]
    clone: int
    clone3: int
    unshare: int
    socket: int
    socketpair: int
    ioctl: int
    fcntl: int


# Numbers of both architectures: x86-64's own table, and the generic one that aarch64 uses.
_REFUSED: Final[dict[str, tuple[int, int]]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "fanotify_init": (300, 262),
    "vhangup": (153, 58),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
}
_X86_64_ONLY: Final = {"iopl": 172, "ioperm": 173, "modify_ldt": 154}
# Without namespaces a run also sees the files, queues and processes of its user: what Landlock does not judge there.
_REFUSED_ALONE: Final[dict[str, tuple[int, int]]] = {
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    # Objects of System V by their numbers, too: whoever knows or guesses one needs no key.
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "inotify_add_watch": (254, 27),
    "pidfd_open": (434, 434),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "socket": (41, 198),
}
# Alone, attributes read by a file's name; programs that copy files go on where there are none.
_UNSUPPORTED_ALONE: Final[dict[str, tuple[int, int]]] = {
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "getxattrat": (464, 464),
    "listxattrat": (465, 465),
}
_X86_64_ALONE: Final = {"chmod": 90, "chown": 92, "lchown": 94, "utime": 132, "utimes": 235, "futimesat": 261}
_TRUNCATE: Final = {"x86_64": 76, "aarch64": 45}
# Calls that name a process by an argument (of this index): alone, a program may name itself, with 0, and nobody else.
_OF_PROCESSES: Final[dict[str, tuple[int, int, int]]] = {
    "prlimit64": (302, 261, 0),
    "setpriority": (141, 140, 1),
    "sched_setscheduler": (144, 119, 0),
    "sched_setparam": (142, 118, 0),
    "sched_setattr": (314, 274, 0),
    "sched_setaffinity": (203, 122, 0),
    "ioprio_set": (251, 30, 1),
}


def _table(machine: str) -> Table | None:
    """Return the numbers of an architecture as `platform.machine()` names it, or None."""
    if machine == "x86_64":
        refused = {name: numbers[0] for name, numbers in _REFUSED.items()} | _X86_64_ONLY
        return Table(
            0xC000003E, 0x40000000, refused,
            clone=56, clone3=435, unshare=272, socket=41, socketpair=53, ioctl=16, fcntl=72,
        )  # fmt: skip
    if machine == "aarch64":
        refused = {name: numbers[1] for name, numbers in _REFUSED.items()}
        return Table(
            0xC00000B7, None, refused,
            clone=220, clone3=435, unshare=97, socket=198, socketpair=199, ioctl=29, fcntl=25,
        )  # fmt: skip
    return None


def _refused_alone(machine: str) -> set[int]:
    """Return the numbers of what is refused where nothing but Landlock stands beside the filter."""
    column = 0 if machine == "x86_64" else 1
    return {numbers[column] for numbers in _REFUSED_ALONE.values()} | (set() if column else {*_X86_64_ALONE.values()})


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | number)


def _when_call(number: int, body: bytes) -> bytes:
    """Run a body for one system call, skip it for all others; afterwards the number is loaded again."""
    count = len(body) // 8
    return _instruction(_JUMP_EQUAL, number, 0, count + 1) + body + _instruction(_LOAD, _OFFSET_NUMBER)


def _argument(index: int) -> bytes:
    """Load the low half of an argument."""
    return _instruction(_LOAD, _OFFSET_ARGS + 8 * index)


def _no_new_namespaces() -> bytes:
    return _argument(0) + _instruction(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1) + _refuse(errno.EPERM)


def program(machine: str, *, alone: bool = False, truncate: bool = True) -> bytes | None:
    """Return the filter's instructions, or None for an architecture without a table.

    Args:
        machine: as `platform.machine()` names it.
        alone: whether it stands without namespaces; every socket is refused then, and what changes files by name.
        truncate: whether files may be cut by their names, where something else judges that.
    """
    table = _table(machine)
    if table is None:
        return None
    refused = {*table.refused.values(), *(_refused_alone(machine) if alone else ())}
    refused |= set() if truncate else {_TRUNCATE[machine]}
    code = _instruction(_LOAD, _OFFSET_ARCH) + _instruction(_JUMP_EQUAL, table.audit, 1, 0)
    code += _instruction(_RETURN, _KILL_PROCESS) + _instruction(_LOAD, _OFFSET_NUMBER)
    if table.foreign_from is not None:
        code += _instruction(_JUMP_GREATER_EQUAL, table.foreign_from, 0, 1) + _refuse(errno.ENOSYS)
    for number in sorted(refused):
        code += _instruction(_JUMP_EQUAL, number, 0, 1) + _refuse(errno.EPERM)
    for numbers in _UNSUPPORTED_ALONE.values() if alone else ():
        code += _instruction(_JUMP_EQUAL, numbers[0 if machine == "x86_64" else 1], 0, 1) + _refuse(errno.EOPNOTSUPP)
    # Its flags are behind a pointer no filter can follow; the C library falls back to clone.
    code += _instruction(_JUMP_EQUAL, table.clone3, 0, 1) + _refuse(errno.ENOSYS)
    for number in (table.clone, table.unshare):
        code += _when_call(number, _no_new_namespaces())
    families = b"".join(
        _instruction(_JUMP_EQUAL, family, len(_SOCKET_FAMILIES) - index, 0)
        for index, family in enumerate(_SOCKET_FAMILIES)
    )
    for number in (table.socket, table.socketpair):
        code += _when_call(number, _argument(0) + families + _refuse(errno.EAFNOSUPPORT))
    for of_x86_64, of_aarch64, index in _OF_PROCESSES.values() if alone else ():
        number = of_x86_64 if machine == "x86_64" else of_aarch64
        code += _when_call(number, _argument(index) + _instruction(_JUMP_EQUAL, 0, 1, 0) + _refuse(errno.EPERM))
    requests = b"".join(
        _instruction(_JUMP_EQUAL, request, 0, 1) + _refuse(errno.EPERM) for request in _TERMINAL_REQUESTS
    )
    code += _when_call(table.ioctl, _argument(1) + requests)
    code += _when_call(table.fcntl, _argument(1) + _instruction(_JUMP_EQUAL, _SET_LEASE, 0, 1) + _refuse(errno.EPERM))
    return code + _instruction(_RETURN, _ALLOW)


def refused_calls(machine: str) -> tuple[str, ...]:
    """Return the names of the calls that are refused whatever their arguments."""
    table = _table(machine)
    return () if table is None else (*sorted(table.refused), "clone3")
