"""Make the targets of a sandbox trial, and hold the program that tries to reach them from inside.

Knows nothing about which sandbox is tried. Everything it touches is made for the trial; where nothing holds it back the
program reads, writes and connects to these things only.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from bridge.executor.interface import Escape, HostPaths
from bridge.system.process import Child

_SHARED_TMP: Final = "/tmp"  # noqa: S108 - where the next run would find what this one left
_SET_ANYHOW: Final = frozenset({"PATH", "HOME", "LANG", "PWD", "TMPDIR", "LC_CTYPE"})
# What belongs to the whole machine; a setting is opened and never written.
_KERNEL: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/sys")
_PROGRAM: Final = r"""
import ctypes, json, os, signal, socket, sys, time
targets = json.loads(sys.argv[1])
def through(action):
    try:
        return action() is not False
    except (OSError, ImportError):
        return False
def write(path):
    with open(path, "w") as file:
        file.write("x")
def read(path):
    with open(path) as file:
        return file.read()
def call(name, family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect(address)
def kernel(name, *arguments):
    return getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == 0
def files(tops):
    for top in tops:
        for folder, below, names in os.walk(top):
            if folder == "/proc":
                below[:] = [name for name in below if not name.isdigit() and name not in ("self", "thread-self")]
            yield from (os.path.join(folder, name) for name in names)
def opened(path):
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
def reached(path, *identity):
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    facts = os.fstat(descriptor)
    os.close(descriptor)
    return (facts.st_dev, facts.st_ino) == identity
def stay():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in range(3):
                os.close(descriptor)
            words = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600) # left-"
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", words + targets["token"]], {})
        os._exit(0)
def by_link(make, path, action):
    make(path, "linked")
    try:
        return action("linked") != ""
    finally:
        os.unlink("linked")
found = {
    "read the runner's key": through(lambda: read(targets["key"])),
    "read the runner's key by a link": through(lambda: by_link(os.symlink, targets["key"], read)),
    "read a credential by a hard link": through(lambda: by_link(os.link, targets["credential"], read)),
    "read another run's directory": through(lambda: os.listdir(targets["other_run"])),
    "write outside its directories": through(lambda: write(targets["outside"])),
    "connect to a socket of the host": through(lambda: call("path", socket.AF_UNIX, targets["socket"])),
    "connect to a socket below an allowed folder": through(lambda: call("path", socket.AF_UNIX, targets["inner"])),
    "read a credential below an allowed folder": through(lambda: read(targets["credential"]) != ""),
    "connect to the host's loopback": through(lambda: call("loop", socket.AF_INET, ("127.0.0.1", targets["port"]))),
    "see a network device": through(lambda: sorted(name for _, name in socket.if_nameindex()) != ["lo"]),
    "see a process of the host": through(lambda: targets["token"] in read("/proc/%d/cmdline" % targets["pid"])),
    "signal a process of the host": through(lambda: os.kill(targets["pid"], 0)),
    "import what lies in its working directory": through(lambda: __import__("kakeya_planted")),
    "reach the runner's key, policy, state or home": any(through(lambda: reached(*one)) for one in targets["private"]),
    "see a variable of the runner": sorted(set(os.environ) & set(targets["variables"])) != [],
}
if sys.platform == "linux":
    abstract = "\0" + targets["token"]
    if targets["network"] != "host":
        found["connect to a socket of the host"] |= through(lambda: call("abstract", socket.AF_UNIX, abstract))
    found["make a user namespace"] = through(lambda: kernel("unshare", 0x10000000))
    found["trace a process of the host"] = through(lambda: kernel("ptrace", 0x4206, targets["pid"], None, None))
    tops = [top for top in targets["kernel"] if os.path.exists(top)]
    found["open a kernel setting for writing"] = any(through(lambda: opened(path)) for path in files(("/proc", "/sys")))
    if targets["mounts"]:
        read_only = [os.statvfs(top).f_flag & os.ST_RDONLY for top in tops]
        found["see kernel settings that are not read-only"] = not all(read_only)
if sys.platform == "darwin":
    # Every file of the data volume has a second name there, and sysctl shows arguments whatever the process table does.
    def arguments(pid):
        libc, query, size = ctypes.CDLL(None), (ctypes.c_int * 3)(1, 49, pid), ctypes.c_size_t(1 << 20)
        text = ctypes.create_string_buffer(size.value)
        return libc.sysctl(query, 3, text, ctypes.byref(size), None, 0) == 0 and targets["token"].encode() in text.raw
    second = "/System/Volumes/Data" + os.path.realpath(targets["key"])
    found["read the runner's key by its second name"] = through(lambda: read(second))
    found["see a process of the host"] |= through(lambda: arguments(targets["pid"]))
def ask_proxy(address):
    with socket.create_connection(("127.0.0.1", int(os.environ["https_proxy"].rpartition(":")[2])), 5) as client:
        client.sendall(b"CONNECT %s HTTP/1.1\r\n\r\n" % address.encode())
        return client.recv(64).startswith(b"HTTP/1.1 200")
if targets["network"] == "proxy":
    own, port = ("127.0.0.1", "localhost", "localhost.localdomain", "[::1]", "169.254.169.254"), targets["port"]
    asked = [ask_proxy("%s:%d" % (name, port)) for name in own]
    found["reach the host through its proxy"] = any(asked)
if targets["network"] == "host":
    # The owner lets such runs reach the network, and with it this host's loopback, devices and abstract sockets.
    del found["connect to the host's loopback"], found["see a network device"]
through(lambda: write(targets["shared_tmp"]))
through(lambda: write(targets["readable"]))
through(lambda: by_link(os.link, targets["readable"], write))
stay()
wrote = through(lambda: write("here"))
for _ in range(200 if wrote else 0):
    if os.path.exists("seen"):
        break
    time.sleep(0.05)
print(json.dumps({"escapes": found, "cannot write its own directory": not wrote}))
"""


@dataclass(frozen=True)
class TrialTargets:
    """Files, sockets and a process outside the sandbox that the trial run tries to reach.

    Attributes:
        root: a private folder with all of it; the run's own directory may be beside.
        token: in the names of everything, unlike anything else.
        victim: a process of the host.
    """

    root: Path
    token: str
    victim: Child
    port: int

    @property
    def outside(self) -> Path:
        """A file that is there only when a run wrote it."""
        return self.root / "outside"

    @property
    def models(self) -> Path:
        """A folder on the allow-list, with a credential file and a socket in it."""
        return self.root / "models"

    @property
    def readable(self) -> Path:
        """A file on the allow-list that is empty until a run writes it."""
        return self.models / "weights"

    @property
    def shared_tmp(self) -> Path:
        """A file in the shared temporary folder that is there only when a run wrote it."""
        return Path(_SHARED_TMP) / f"kakeya-{self.token}"

    def argv(
        self, interpreter: str, paths: HostPaths, network: str = "none", *, mounts: bool = True
    ) -> tuple[str, ...]:
        """Return the command of the trial run; it also tries to reach private paths of the host.

        Args:
            interpreter: absolute path of a Python.
            paths: those of the host that no run reaches are tried.
            network: as of the kind of run: that of the host is not tried, and a proxy is asked for the host too.
            mounts: whether the sandbox has mounts of its own.
        """
        arguments = {
            "key": str(self.root / "runner.key"),
            "other_run": str(self.root / "other-run"),
            "outside": str(self.outside),
            "socket": str(self.root / "host.sock"),
            "shared_tmp": str(self.shared_tmp),
            "credential": str(self.models / ".netrc"),
            "readable": str(self.readable),
            "inner": str(self.models / "s"),
            "private": list({*_identities(paths.private), *paths.identities}),
            "kernel": _KERNEL,
            "network": network,
            "mounts": mounts,
            "port": self.port,
            "pid": self.victim.pid,
            "token": self.token,
            "variables": [name for name in os.environ if name not in _SET_ANYHOW and not name.startswith("KAKEYA_")],
        }
        return (interpreter, "-I", "-c", _PROGRAM, json.dumps(arguments))

    def escapes(self, answer: dict[str, Any], survivors: int, users: set[int]) -> tuple[Escape, ...]:
        """Return every way out with what came of it; what can be seen from outside is believed from outside."""
        through = dict(answer["escapes"])
        through["write outside its directories"] = self.outside.exists()
        through["write a file that it may read"] = self.readable.stat().st_size != 0
        through["leave a file for the next run"] = self.shared_tmp.exists()
        through["leave a process"] = survivors != 0 or bool(list(_left(self.token)))
        if users:
            through["be root on the host"] = 0 in users
        return tuple(Escape(what, refused=not got) for what, got in through.items())


def _left(token: str) -> Iterator[int]:
    """Yield the processes that a trial left behind: by their words, since they have neither parent nor marker."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(f"left-{token}" in word for word in process.cmdline()):
                yield process.pid


def _identities(paths: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Yield path, device and inode of what exists: inside, an empty folder may stand at the same path."""
    for path in paths:
        with suppress(OSError):
            facts = Path(path).stat()
            yield path, facts.st_dev, facts.st_ino


@dataclass
class Witness:
    """Records from the host which users the trial's processes are; inside, a user namespace hides it.

    Attributes:
        work: the trial's working directory, where its program says that it is there and waits to be seen.
        users: real, effective and saved user of every process of the trial, as the host counts; empty until seen.
    """

    work: Path
    pid: int = 0
    users: set[int] = field(default_factory=set)

    def started(self, pid: int, _started: float, _marker: str) -> None:
        """Record the process id of the trial's subreaper."""
        self.pid = pid

    def record_users(self) -> None:
        """Record the users of the trial's processes once its program waits for it, then let the program go on."""
        if self.users or not (self.work / "here").exists():
            return
        for process in psutil.Process(self.pid).children(recursive=True):
            with suppress(psutil.Error):
                self.users.update(process.uids())
        (self.work / "seen").touch()


@contextmanager
def make_targets(root: Path) -> Iterator[TrialTargets]:
    """Make the targets below a private folder; the victim ends and the sockets close with the block."""
    token = secrets.token_hex(8)
    (root / "runner.key").write_text("not for the run")
    (root / "runner.key").chmod(0o600)
    (root / "other-run").mkdir(mode=0o700)
    (root / "models").mkdir(mode=0o755)
    (root / "models" / ".netrc").write_text("not for the run")
    (root / "models" / "weights").touch()
    (root / "models" / "weights").chmod(0o666)  # what keeps a run from writing it has to be the sandbox
    with ExitStack() as stack:
        families = (
            socket.AF_UNIX,
            socket.AF_INET,
            socket.AF_UNIX,
            *((socket.AF_UNIX,) if sys.platform == "linux" else ()),
        )
        servers = [stack.enter_context(socket.socket(family, socket.SOCK_STREAM)) for family in families]
        addresses: tuple[Any, ...] = (
            str(root / "host.sock"),
            ("127.0.0.1", 0),
            str(root / "models" / "s"),
            f"\0{token}",
        )
        for server, address in zip(servers, addresses, strict=False):
            server.bind(address)
            server.listen()
        for path in (root / "host.sock", root / "models" / "s"):
            path.chmod(0o777)  # what keeps a run of another user out has to be the sandbox
        null = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, null)
        # Its end of the pipe closes with this process, however that ends: the victim never outlives a killed trial.
        alive, ours = os.pipe()
        for descriptor in (alive, ours):
            stack.callback(os.close, descriptor)
        waiting = f"import os; os.read({alive}, 1)"
        argv = [sys.executable, "-I", "-S", "-c", waiting, token]
        victim = stack.enter_context(Child(argv, env={}, cwd="/", output_fd=null, pass_fds=(alive,)))
        targets = TrialTargets(root, token, victim, servers[1].getsockname()[1])
        stack.callback(targets.shared_tmp.unlink, missing_ok=True)
        yield targets
