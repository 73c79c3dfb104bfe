"""Ways out of the sandbox, each tried from inside; every one is refused, as root's child and as another user's."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from bridge.system.process import Child
from tests.integration.executor.inside import TRY, refused, told

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are ways out of a Linux sandbox")


def test_a_private_key_outside_cannot_be_read_by_any_name(caged, token, tmp_path):
    key = tmp_path / "id_ed25519"
    key.write_text("a private key")
    key.chmod(0o600)
    execution = caged.run(
        f"""{TRY}
key = {str(key)!r}
tell(by_path=attempt(lambda: open(key).read()),
     by_root=attempt(lambda: open("/proc/self/root" + key).read()),
     by_parent=attempt(lambda: open("../../" + os.path.basename(key)).read()),
     by_init=attempt(lambda: open("/proc/1/root" + key).read()),
     shadow=attempt(lambda: open("/etc/shadow").read()),
     home=attempt(lambda: os.listdir(os.path.expanduser("~root") + "/.ssh")))  # {token}
"""
    )

    refused(execution, "by_path", "by_root", "by_parent", "by_init", "shadow", "home")


def test_only_the_runs_own_folders_can_be_written(caged, token, tmp_path):
    planted = Path(sys.prefix) / "kakeya-planted.pth"
    execution = caged.run(
        f"""{TRY}
def write(path):
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)
tell(interpreter=attempt(write, {str(planted)!r}), libraries=attempt(write, "/usr/lib/x"), root=attempt(write, "/x"),
     etc=attempt(write, "/etc/x"), dev=attempt(write, "/dev/x"), sysctl=attempt(write, "/proc/sys/kernel/core_pattern"),
     beside=attempt(open, os.path.dirname(os.environ["HOME"]) + "/x", "w") and "refused",
     run=[attempt(write, os.path.join(os.environ[name], "x")) for name in ("PWD", "HOME", "TMPDIR", "KAKEYA_OUT")])
# {token}
"""
    )

    answer = told(execution)
    assert answer.pop("run") == ["got through: None"] * 4
    assert set(answer.values()) == {"refused"}
    assert not planted.exists()
    assert not (caged.directory.root / "x").exists()


def test_what_one_run_leaves_in_tmp_is_not_there_for_the_next(caged, token):
    poison = f"{TRY}\nopen('/tmp/cache', 'w').write('poison')\nopen('/dev/shm/cache', 'w').write('poison')\ntell()"
    caged.run(poison)
    execution = caged.run(f"{TRY}\ntell(names=sorted(os.listdir('/tmp')), shm=os.listdir('/dev/shm'))  # {token}")

    assert "cache" not in told(execution)["names"]
    assert told(execution)["shm"] == []
    assert not Path("/tmp/cache").exists()


def test_sockets_of_the_host_cannot_be_reached(caged, token, tmp_path, request):
    path, abstract = tmp_path / "host.sock", f"\0{token}"
    servers = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
    for server, address in zip(servers, (str(path), abstract, ("127.0.0.1", 0)), strict=True):
        request.addfinalizer(server.close)
        server.bind(address)
        server.listen()
    path.chmod(0o666)
    port = servers[2].getsockname()[1]
    execution = caged.run(
        f"""{TRY}
import socket
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect(address)
tell(path=attempt(connect, socket.AF_UNIX, {str(path)!r}), abstract=attempt(connect, socket.AF_UNIX, {abstract!r}),
     loopback=attempt(connect, socket.AF_INET, ("127.0.0.1", {port})),
     network=attempt(connect, socket.AF_INET, ("192.0.2.1", 80)),
     name=attempt(socket.getaddrinfo, "example.org", 80),
     vsock=attempt(socket.socket, 40, socket.SOCK_STREAM), packet=attempt(socket.socket, 17, socket.SOCK_RAW),
     raw=attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW))
"""
    )

    refused(execution, "path", "abstract", "loopback", "network", "name", "vsock", "packet", "raw")


def test_processes_of_the_host_are_neither_seen_nor_signalled_nor_traced(caged, token, tmp_path):
    null = os.open(os.devnull, os.O_WRONLY)
    victim = Child([sys.executable, "-c", "import time; time.sleep(600)"], env={}, cwd="/", output_fd=null)
    with victim:
        execution = caged.run(
            f"""{TRY}
pid = {victim.pid}
tell(signal=attempt(os.kill, pid, 9), everybody=attempt(lambda: [os.kill(n, 9) for n in range(3, 70000)]),
     stat=attempt(lambda: open(f"/proc/{{pid}}/stat").read()),
     environ=attempt(lambda: open(f"/proc/{{pid}}/environ").read()),
     trace=attempt(call, 101, 16, pid, 0, 0), trace_me=attempt(call, 101, 0, 0, 0, 0),
     read_memory=attempt(call, 310, pid, 0, 0, 0, 0, 0))
# {token}
"""
        )
        alive = victim.poll() is None
    os.close(null)

    assert alive
    refused(execution, "signal", "everybody", "stat", "environ", "trace", "trace_me", "read_memory")


def test_the_process_table_holds_only_the_run(caged, token):
    execution = caged.run(f"{TRY}\ntell(pids=sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))  # {token}")

    assert told(execution) == {"pids": [1, 2]}


def test_new_namespaces_mounts_and_other_kernel_doors_are_shut(caged, token):
    flags = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "user_and_mount": 0x10020000}
    execution = caged.run(
        f"""{TRY}
found = {{"unshare_" + name: attempt(call, 272, flag) for name, flag in {flags!r}.items()}}
found["clone"] = attempt(call, 56, 0x10000000 | 17, 0, 0, 0, 0)
found["clone3"] = attempt(call, 435, 0, 0)
found["join"] = attempt(lambda: call(308, os.open("/proc/self/ns/user", os.O_RDONLY), 0))
tell(**found, mount=attempt(call, 165, b"none", b"/tmp", b"tmpfs", 0, 0), unmount=attempt(call, 166, b"/etc/passwd", 0),
     open_tree=attempt(call, 428, -100, b"/", 0), keys=attempt(call, 250, 0, -3, 0), bpf=attempt(call, 321, 0, 0, 0),
     perf=attempt(call, 298, 0, 0, -1, -1, 0), io_uring=attempt(call, 425, 1, 0), fault=attempt(call, 323, 0),
     handle=attempt(call, 304, -100, 0, 0), chroot=attempt(os.chroot, "/tmp"),
     device=attempt(os.mknod, "null", 0o600 | 0o020000, os.makedev(1, 3)))  # {token}
"""
    )

    assert set(told(execution).values()) == {"refused"}


def test_no_privilege_is_left_inside(caged, token):
    program = f"""{TRY}
lines = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
tell(**{{name: int(lines[name].strip(), 16) for name in names}}, uid=os.getuid(), sid=os.getsid(0) == os.getpid(),
     set_uid=attempt(os.setuid, 0) if os.getuid() else "refused")  # {token}
"""
    execution = caged.run(program)
    answer = told(execution)

    assert [answer[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
    assert (answer["NoNewPrivs"], answer["Seccomp"]) == (1, 2)
    assert answer["set_uid"] == "refused"
    assert answer["uid"] == execution.sandbox.uid != 0


def test_characters_cannot_be_pushed_into_a_terminal(caged, token):
    execution = caged.run(
        f"""{TRY}
import fcntl, pty
master, slave = pty.openpty()
tell(sti=attempt(fcntl.ioctl, slave, 0x5412, b"x"), linux=attempt(fcntl.ioctl, slave, 0x541C, b"x"))  # {token}
"""
    )

    refused(execution, "sti", "linux")


def test_no_descriptor_but_the_standard_ones_and_the_pipe_comes_in(caged, token):
    program = f"""{TRY}
found = {{}}
for name in os.listdir("/proc/self/fd"):
    try: found[name] = os.readlink("/proc/self/fd/" + name)
    except OSError: continue
pipe = os.environ["KAKEYA_SAMPLE_PIPE"]
tell(others=sorted(found[n].split(":")[0] for n in found if n not in (pipe, "0", "1", "2")), pipe=found[pipe][:5])
# {token}
"""
    answer = told(caged.run(program))

    assert answer == {"others": [], "pipe": "pipe:"}


def test_request_code_can_run_git_and_a_shell_and_still_gets_nowhere(caged, token, tmp_path):
    key = tmp_path / "id_ed25519"
    key.write_text("a private key")
    program = f"""{TRY}
import subprocess
def shell(line):
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True)
tell(git=shell("git init -q x && cd x && git status --short && echo fine").stdout, key=shell("cat {key}").returncode,
     unshare=shell("unshare --user true").returncode, mount=shell("mount -t tmpfs none /tmp").returncode,
     su=shell("su -c id").returncode, ssh=shell("ls /etc/ssh /root/.ssh").returncode)  # {token}
"""
    answer = told(caged.run(program, code="request"))

    assert answer.pop("git") == "fine\n"
    assert 0 not in answer.values()
