"""Probes for processes of the host, descriptors that came along, and variables of the runner."""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

from harness import LINUX_X86, TARGETS, answered, call, each, probe

VICTIM, TOKEN = TARGETS["victim"], TARGETS["token"]
SEEN = (
    "cmdline",
    "environ",
    "status",
    "maps",
    "mem",
    "stat",
    "io",
    "stack",
    "syscall",
    "fd",
    "root",
    "cwd",
    "exe",
    "task",
)


@each("see {} of a process of the host", SEEN)
def see(name: str) -> str | None:
    path = Path(f"/proc/{VICTIM}") / name
    if name in {"root", "cwd", "exe"}:
        return os.readlink(path)
    return str(os.listdir(path)) if name in {"fd", "task"} else str(path.read_bytes()[:60])


@probe("see the owner of a process of the host")
def owner() -> str:
    return f"user {os.stat(f'/proc/{VICTIM}').st_uid}"


@probe("see a process that is not the run's")
def others() -> str | None:
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    others_pids = [name for name in names if TOKEN.encode() in Path("/proc", name, "cmdline").read_bytes()]
    return str(others_pids) if others_pids else None


SIGNALS = {"a test signal": 0, "SIGTERM": 15, "SIGKILL": 9, "SIGSTOP": 19}


@each("send a process of the host {}", SIGNALS.items())
def send(number: int) -> str:
    os.kill(VICTIM, number)
    return "sent"


@each("send a process group of the host {}", SIGNALS.items())
def send_group(number: int) -> str:
    os.killpg(TARGETS["victim_group"], number)
    return "sent"


def change(name: str) -> object:
    """Return an action on a process of the host that its user could take."""
    return {
        "lower the priority of": lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19),
        "pin": lambda: os.sched_setaffinity(VICTIM, {0}),
        "reschedule": lambda: os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0)),
        "read the affinity of": lambda: os.sched_getaffinity(VICTIM),
        "limit": lambda: resource.prlimit(VICTIM, 7, (5, 5)),
        "open a descriptor of": lambda: os.pidfd_open(VICTIM),
        "regroup": lambda: os.setpgid(VICTIM, 0),
        "read the session of": lambda: os.getsid(VICTIM),
        "read the group of": lambda: os.getpgid(VICTIM),
        "read the priority of": lambda: os.getpriority(os.PRIO_PROCESS, VICTIM),
        "read the scheduling of": lambda: os.sched_getscheduler(VICTIM),
        "read the processor time of": lambda: time.clock_gettime(~VICTIM << 3 | 2),  # CPUCLOCK_SCHED
    }[name]


NAMES = (
    "lower the priority of",
    "pin",
    "reschedule",
    "read the affinity of",
    "limit",
    "open a descriptor of",
    "regroup",
)


FACTS = (
    *("read the session of", "read the group of", "read the priority of", "read the scheduling of"),
    "read the processor time of",
)


@each("{} a process of the host", (*NAMES, *FACTS))
def act(name: str) -> str:
    return f"done: {change(name)()}"  # type: ignore[operator]


@probe("lower the priority of its user's processes on the host")
def user_priority() -> None:
    os.setpriority(os.PRIO_USER, os.getuid(), 19)


if LINUX_X86:
    RAW = {
        "attach to": lambda: call(101, 16, VICTIM, 0, 0),
        "seize": lambda: call(101, 0x4206, VICTIM, 0, 0),
        "read the memory of": lambda: call(310, VICTIM, 0, 0, 0, 0, 0),
        "write the memory of": lambda: call(311, VICTIM, 0, 0, 0, 0, 0),
        "compare itself with": lambda: call(312, os.getpid(), VICTIM, 0, 0, 0),
        "queue a signal to": lambda: call(129, VICTIM, 10, b"\0" * 128),
        "signal a thread of": lambda: call(234, VICTIM, VICTIM, 0),
        "set the disk priority of": lambda: call(251, 1, VICTIM, (3 << 13)),
        "move the memory of": lambda: call(256, VICTIM, 0, 0, 0),
        "read the robust list of": lambda: call(274, VICTIM, b"\0" * 8, b"\0" * 8),
    }

    @each("{} a process of the host", RAW.items())
    def raw(action: object) -> str:
        return f"done: {action()}"  # type: ignore[operator]

    @each("be traced by its parent, {}", {"by number": 101}.items())
    def trace_me(number: int) -> str | None:
        return answered(lambda: call(number, 0, 0, 0, 0))


def descriptors() -> dict[int, os.stat_result]:
    """Return the descriptors of this process."""
    facts_of = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            facts_of[int(name)] = os.fstat(int(name))
        except OSError:
            continue
    return facts_of


NULL = os.stat("/dev/null").st_rdev
DESCRIPTORS = {
    "a folder": lambda facts: stat.S_ISDIR(facts.st_mode),
    "a socket": lambda facts: stat.S_ISSOCK(facts.st_mode),
    "a block device": lambda facts: stat.S_ISBLK(facts.st_mode),
    "a regular file of the host": lambda facts: stat.S_ISREG(facts.st_mode),
    "a device but /dev/null": lambda facts: stat.S_ISCHR(facts.st_mode) and facts.st_rdev != NULL,
}


@each("hold {} that came along", DESCRIPTORS.items())
def held(matches: Callable[[os.stat_result], bool]) -> str | None:
    for number, facts in descriptors().items():
        if matches(facts):
            return f"descriptor {number}: {os.readlink(f'/proc/self/fd/{number}')}"
    return None


@probe("hold a descriptor of the sandbox's own set-up")
def set_up() -> str | None:
    links = {number: os.readlink(f"/proc/self/fd/{number}") for number in descriptors()}
    inherited = {number: link for number, link in links.items() if "memfd" in link or "anon_inode" in link}
    return str(inherited) if inherited else None


@probe("see a variable of the runner")
def variables() -> str | None:
    shared_names = sorted(set(os.environ) & set(TARGETS["variables"]))
    return str(shared_names) if shared_names else None


@probe("see the runner's variables in the first process")
def first_process() -> str | None:
    text = Path("/proc/1/environ").read_bytes()
    return "the secret" if TARGETS["secret"].encode() in text else None


@probe("leave a process behind")
def stay() -> None:
    """Whether it is still there is looked at from outside."""
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0:
            os.execv(
                TARGETS["interpreter"],
                (TARGETS["interpreter"], "-I", "-S", "-c", "import time; time.sleep(900)", TARGETS["left_token"]),
            )
        os._exit(0)


@probe("import what lies in the working directory")
def planted() -> str:
    __import__("kakeya_planted")
    return "imported"


@probe("execute a set-user program with its rights")
def set_user() -> str | None:
    """Start one and look whose process it is: a program that is there to be seen gives nobody anything."""
    for path in (TARGETS["set_user"], "/usr/bin/su", "/usr/bin/sudo", "/usr/bin/passwd"):
        if not os.path.exists(path) or not os.stat(path).st_mode & stat.S_ISUID:
            continue
        silence, executed = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            execute(path, silence[0])
        os.close(executed[1])
        os.read(executed[0], 1)  # the child's end closes when it executes the program, or ends
        user = os.stat(f"/proc/{pid}").st_uid
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if user != os.geteuid():
            return f"{path} is of user {user}"
    return None


def execute(path: str, silence: int) -> None:
    """Become a program that waits: for a minute, or for a password that nobody types."""
    os.dup2(silence, 0)
    for stream in (1, 2):  # what it asks for is no part of the answer
        os.dup2(os.open("/dev/null", os.O_WRONLY), stream)
    try:
        os.execv(path, (path, "60"))
    finally:
        os._exit(1)
