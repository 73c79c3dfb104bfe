"""What the probes try to reach: files, sockets, processes and kernel objects of the host, looked at before and after.

Modes keep nobody out of any of it: only the sandbox does. Whoever the run is, the process it may try to reach is its
user's.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

CREDENTIALS = (
    *(".git-credentials", ".netrc", "_netrc", ".npmrc", ".pgpass", ".pypirc", ".s3cfg", "pip.conf", "pip.ini"),
    *(".docker/config.json", ".ssh/id_ed25519", ".aws/credentials", ".kube/config", ".azure/token", ".gnupg/ring"),
    *(".config/gcloud/key.json", "deep/er/pip.conf", "huggingface/token", "gh/hosts.yml", "model/id_rsa"),
)
HIDDEN = {
    "the runner's key": "state/runner.key",
    "the state folder": "state",
    "the journal": "state/state.sqlite",
    "the policy": "config/policy.toml",
    "the list of signers": "config/allowed_signers",
    "the folder of the policy": "config",
    "the home folder": "home",
    "a private key of the owner": "home/.ssh/id_ed25519",
    "a token of the owner": "home/.config/gh/hosts.yml",
    "the bus": "bus.git/config",
    "the runner's log": "state/log/runner.jsonl",
    "a file that everybody may read": "readable",
}
SHARED = ("/tmp", "/dev/shm", "/var/tmp", "/run")
KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
IPC_CREATE, IPC_REMOVE = 0o1000 | 0o666, 0
VOLATILE = ("random", "inode", "dentry", "file-nr", "pty", "entropy", "ns_last_pid", "uuid", "quota", "nf_conntrack")


@dataclass(frozen=True)
class Scene:
    """The host as the probes find it.

    Attributes:
        root: a folder with all of it.
        targets: what the program inside is told.
        victim: a process of the run's user.
    """

    root: Path
    targets: dict[str, Any]
    victim: subprocess.Popen[bytes]
    before: dict[str, object]

    @property
    def models(self) -> Path:
        """The folder that the run may read."""
        return self.root / "models"

    def reached(self) -> dict[str, str | None]:
        """Return what changed on the host, by what was looked at; None where nothing did."""
        after = facts_of(self.root, self.victim.pid, self.targets)
        return {
            f"seen from outside: {name}": None if value == self.before[name] else f"{self.before[name]} became {value}"
            for name, value in after.items()
        }


@contextmanager
def host_scene(folder: Path, uid: int) -> Iterator[Scene]:
    """Make the targets below a folder for runs of a user; all of it goes with the block.

    Args:
        folder: a new folder that every user may enter.
        uid: the user of the run, and of the process it may try to reach.
    """
    token, secret = f"kakeya-{secrets.token_hex(8)}", secrets.token_hex(16)
    _write_files(folder, secret)
    with ExitStack() as stack:
        port = _open_sockets(stack, folder, token)
        victim = stack.enter_context(_victim(uid, token))
        targets = {
            "token": token,
            "left_token": f"left-{secrets.token_hex(8)}",
            "secret": secret,
            "hidden": {name: str(folder / path) for name, path in HIDDEN.items()},
            "models": str(folder / "models"),
            "credentials": CREDENTIALS,
            "sockets": str(folder / "sockets"),
            "set_user": str(folder / "models" / "set-user"),
            "other_run": str(folder / "other-run"),
            "key_inode": (folder / HIDDEN["the runner's key"]).stat().st_ino,
            "interpreter": sys.executable,
            "packages": sysconfig.get_paths()["purelib"],
            **_kernel_objects(stack, token),
            "link": str(folder / "home" / "link"),
            "namespaces": {kind: Path(f"/proc/self/ns/{kind}").stat().st_ino for kind in NAMESPACES},
            "kernel_files": _writable_kernel_files(),
            "victim": victim.pid,
            "victim_group": os.getpgid(victim.pid),
            "variables": [*(name for name in os.environ if name not in _EVERYBODYS), "KAKEYA_RUNNER_TOKEN"],
            "port": port,
            "addresses": _addresses(),
        }
        yield Scene(folder, targets, victim, facts_of(folder, victim.pid, targets))


_EVERYBODYS = frozenset({"PATH", "HOME", "LANG", "PWD", "TMPDIR", "LC_CTYPE", "KAKEYA_MARKER"})


def facts_of(root: Path, victim: int, targets: dict[str, Any]) -> dict[str, object]:
    """Return what a run could have changed on the host, each fact by its name."""
    process = psutil.Process(victim)
    return {
        "its user's process runs": process.is_running() and process.status() not in {"zombie", "stopped"},
        "the priority of that process": process.nice(),
        "the processors of that process": tuple(process.cpu_affinity()),
        "the scheduling of that process": os.sched_getscheduler(victim),
        "the files and folders": _digest(root),
        "what lies in shared folders": tuple(
            str(Path(folder, targets["token"])) for folder in SHARED if Path(folder, targets["token"]).exists()
        ),
        "processes that were left": _left(targets["left_token"]),
        "mounts": hashlib.sha256(Path("/proc/self/mounts").read_bytes()).hexdigest(),
        "the name of the host": socket.gethostname(),
        "kernel settings": _settings(),
        "loaded modules": len(Path("/proc/modules").read_text().splitlines()) if Path("/proc/modules").exists() else 0,
        "keys": Path("/proc/key-users").read_text() if Path("/proc/key-users").exists() else "",
    }


def _write_files(folder: Path, secret: str) -> None:
    names = [name for name in HIDDEN.values() if "." in Path(name).name or "readable" in name]
    for name in (
        *names,
        "home/secret",
        "other-run/secret",
        *(f"models/{model}" for model in CREDENTIALS),
        "state/secret",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(secret)
    (folder / "models" / "weights").write_bytes(b"\0" * 4096)
    (folder / "home" / "link").symlink_to(secret)
    os.setxattr(folder / HIDDEN["the runner's key"], "user.kakeya", secret.encode())
    (folder / "sockets").mkdir()
    for path in (folder, *(path for path in folder.rglob("*") if not path.is_symlink())):
        path.chmod(0o755 if path.is_dir() else 0o644)
    Path(shutil.copy("/bin/sleep", folder / "models" / "set-user")).chmod(0o4755)


def _open_sockets(stack: ExitStack, folder: Path, token: str) -> int:
    """Listen at every address the probes try; return the port."""
    for kind in KINDS:
        places = (f"\0{token}-{int(kind)}", f"{folder}/sockets/{int(kind)}", f"{folder}/models/s{int(kind)}")
        for place in places:
            server = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            server.bind(place)
            if not place.startswith("\0"):
                Path(place).chmod(0o777)
            if kind != socket.SOCK_DGRAM:
                server.listen()
    server = stack.enter_context(socket.create_server(("", 0)))
    port = int(server.getsockname()[1])
    echo = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    echo.bind(("", port))
    threading.Thread(target=_echo, args=(echo,), daemon=True).start()
    return port


def _echo(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data, address = server.recvfrom(64)
            server.sendto(data, address)


@contextmanager
def _victim(uid: int, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of a user that ends with this one."""
    user = {"user": uid, "group": uid, "extra_groups": []} if os.getuid() == 0 else {}
    argv = ["/bin/sh", "-c", "read end", token]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, cwd="/", env={}, start_new_session=True, **user) as victim:
        try:
            yield victim
        finally:
            victim.kill()


def _kernel_objects(stack: ExitStack, token: str) -> dict[str, object]:
    """Make System V objects, a named shared memory and a session key; return the key and numbers of the first."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbelow(1 << 30) + 1
    memory, semaphore, queue = (
        libc.shmget(key, 4096, IPC_CREATE),
        libc.semget(key, 1, IPC_CREATE),
        libc.msgget(key, IPC_CREATE),
    )
    stack.callback(libc.shmctl, memory, IPC_REMOVE, None)
    stack.callback(libc.semctl, semaphore, 0, IPC_REMOVE)
    stack.callback(libc.msgctl, queue, IPC_REMOVE, None)
    named = Path("/dev/shm", f"{token}-named")
    named.write_bytes(b"x")
    stack.callback(named.unlink, missing_ok=True)
    if os.uname().machine == "x86_64":
        libc.syscall(250, 1, None)  # KEYCTL_JOIN_SESSION_KEYRING: a new one, which children inherit
        libc.syscall(248, b"user", token.encode(), b"secret", 6, -3)  # add_key to the session keyring
    return {"ipc_key": key, "ipc_numbers": [memory, semaphore, queue]}


def _writable_kernel_files() -> list[str]:
    """Return the files below /proc and /sys that somebody on this host may write, those of processes apart."""
    paths = []
    for top in ("/proc", "/sys"):
        for folder, names, files in os.walk(top):
            if folder == "/proc":
                names[:] = [name for name in names if not name.isdigit() and name not in {"self", "thread-self"}]
            for path in (os.path.join(folder, name) for name in files):
                with contextlib.suppress(OSError):
                    if os.lstat(path).st_mode & 0o222:
                        paths.append(path)
    return paths


def _settings() -> str:
    """Return a digest of the settings below /proc/sys that do not change by themselves."""
    state = hashlib.sha256()
    for folder, _, files in os.walk("/proc/sys"):
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not any(word in path for word in VOLATILE):
                with contextlib.suppress(OSError):
                    state.update(path.encode() + Path(path).read_bytes())
    return state.hexdigest()


def _digest(root: Path) -> str:
    """Return a digest of names, modes, owners, times and contents below a folder, the run's own folders apart."""
    state = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.relative_to(root).parts[0] in {"run", "run.handle"}:
            continue
        facts = path.lstat()
        state.update(f"{path} {facts.st_mode} {facts.st_uid} {facts.st_mtime_ns} {facts.st_nlink}".encode())
        state.update(path.read_bytes() if path.is_file() else b"")
    return state.hexdigest()


def _left(token: str) -> int:
    count = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            count += token in process.cmdline()
    return count


def _addresses() -> list[str]:
    """Return the addresses of this host's devices but the loopback."""
    return [
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if name != "lo" and address.family == socket.AF_INET
    ]
