"""Probes for sockets and networks of the host."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from harness import TARGETS, answered, each, probe

FAMILIES = [number for number in range(3, 46) if number not in {10, 16}]
KINDS = {"stream": socket.SOCK_STREAM, "datagram": socket.SOCK_DGRAM, "packets": socket.SOCK_SEQPACKET}
ADDRESSES = {
    "the host's loopback": (socket.AF_INET, ("127.0.0.1", TARGETS["port"])),
    "the host's loopback by IPv6": (socket.AF_INET6, ("::1", TARGETS["port"])),
    "every address of the host": (socket.AF_INET, ("0.0.0.0", TARGETS["port"])),
    "the host by a mapped address": (socket.AF_INET6, ("::ffff:127.0.0.1", TARGETS["port"])),
    "a cloud's metadata": (socket.AF_INET, ("169.254.169.254", 80)),
    "a private network": (socket.AF_INET, ("10.0.0.1", 80)),
    "the documentation network": (socket.AF_INET, ("192.0.2.1", 80)),
    "a network by IPv6": (socket.AF_INET6, ("2001:db8::1", 80)),
    "the link by IPv6": (socket.AF_INET6, ("fe80::1", 80)),
    **{
        f"the host's address {address}": (socket.AF_INET, (address, TARGETS["port"]))
        for address in TARGETS["addresses"]
    },
}
if TARGETS["network"] == "host":  # what such a run reaches is known, and no packet of a study leaves the machine
    ADDRESSES = {name: place for name, place in ADDRESSES.items() if place[1][1] == TARGETS["port"]}


@each("make a socket of family {}", FAMILIES)
def family(number: int) -> str | None:
    return answered(lambda: socket.socket(number, socket.SOCK_RAW if number == 17 else socket.SOCK_STREAM).close())


ASKED = (
    *(
        "127.0.0.1",
        "localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "0.0.0.0",
        "2130706433",
        "0x7f000001",
        "127.1",
    ),
    *("[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "metadata.google.internal", "10.0.0.1", "192.168.0.1"),
    *("127.0.0.1.nip.io", "localtest.me", socket.gethostname(), "host.docker.internal", "example.org.", "EXAMPLE.ORG"),
)


@each("reach {} through the proxy", ASKED)
def proxied(name: str) -> str | None:
    """What stands for itself inside has no proxy, and refuses the connection."""
    with socket.create_connection(("127.0.0.1", 3128), 2) as client:
        client.sendall(f"CONNECT {name}:{TARGETS['port']} HTTP/1.1\r\n\r\n".encode())
        answer = client.recv(64)
        return f"answered {answer!r}" if answer.startswith(b"HTTP/1.1 200") else None


def connect(kind: int, number: int, address: object) -> str:
    with socket.socket(number, kind) as client:
        client.settimeout(1)
        client.connect(address)
        client.send(b"reached")
    return f"connected to {address!r}"


@each("connect to {}", ADDRESSES.items())
def stream(target: tuple[int, object]) -> str:
    return connect(socket.SOCK_STREAM, *target)


@each("send a datagram to {}", ADDRESSES.items())
def datagram(target: tuple[int, tuple[str, int]]) -> str:
    """The host's own port has to answer; to any other address a route is enough."""
    with socket.socket(target[0], socket.SOCK_DGRAM) as client:
        client.settimeout(0.5)
        client.connect(target[1])
        client.send(TARGETS["token"].encode())
        return f"answered {client.recv(64)!r}" if target[1][1] == TARGETS["port"] else f"sent to {target[1]}"


@each("connect to an abstract socket of the host, {}", KINDS.items())
def abstract(kind: int) -> str:
    return connect(kind, socket.AF_UNIX, f"\0{TARGETS['token']}-{int(kind)}")


@each("connect to a socket of the host by its path, {}", KINDS.items())
def by_path(kind: int) -> str:
    return connect(kind, socket.AF_UNIX, f"{TARGETS['sockets']}/{int(kind)}")


@each("connect to a socket below the declared folder, {}", KINDS.items())
def declared(kind: int) -> str:
    return connect(kind, socket.AF_UNIX, f"{TARGETS['models']}/s{int(kind)}")


@each("connect to a socket below the declared folder by {}", ("a link", "its open folder", "the root of the process"))
def roundabout(way: str) -> str:
    target = f"{TARGETS['models']}/s{int(socket.SOCK_STREAM)}"
    if way == "a link":
        path = os.path.join(os.environ["TMPDIR"], "s")
        os.symlink(target, path)
    elif way == "its open folder":
        path = f"/proc/self/fd/{os.open(TARGETS['models'], os.O_RDONLY)}/s{int(socket.SOCK_STREAM)}"
    else:
        path = f"/proc/self/root{target}"
    return connect(socket.SOCK_STREAM, socket.AF_UNIX, path)


SYSTEM_SOCKETS = (
    *("/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"),
    *("/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/socket", "/dev/log", "/run/snapd.socket"),
    *("/run/podman/podman.sock", "/tmp/.X11-unix/X0", "/run/udev/control", "/run/nscd/socket", "/run/crio/crio.sock"),
)


@each("connect to {}", SYSTEM_SOCKETS)
def system_socket(path: str) -> str:
    return connect(socket.SOCK_STREAM, socket.AF_UNIX, path)


@each("make a raw socket for {}", {"IPv4": (2, 255), "IPv6": (10, 255), "ICMP": (2, 1), "TCP": (2, 6)}.items())
def raw(what: tuple[int, int]) -> str:
    socket.socket(what[0], socket.SOCK_RAW, what[1]).close()
    return "made"


@probe("resolve a name")
def resolve() -> str:
    return str(socket.getaddrinfo("localhost" if TARGETS["network"] == "host" else "example.org", 80))


@probe("see a network device but the loopback")
def devices() -> str | None:
    names = sorted(name for _, name in socket.if_nameindex())
    return None if names == ["lo"] else str(names)


@each("see the host's connections in {}", ("tcp", "tcp6", "udp", "unix", "netlink", "packet", "route", "arp"))
def table(name: str) -> str | None:
    """Look also where the process that runs the probes may: rules for paths know it, and not its children."""
    port = f":{TARGETS['port']:04X} "
    for process in ("self", "thread-self", os.getppid(), f"{os.getppid()}/task/{os.getppid()}"):
        try:
            text = Path("/proc", str(process), "net", name).read_text()
        except OSError:
            continue
        sockets = [line for line in text.splitlines()[1:] if port in line or TARGETS["token"] in line]
        if sockets:
            return sockets[0]
    return None


def netlink(protocol: int, kind: int, payload: bytes) -> bytes:
    """Return the first answer of a netlink protocol."""
    with socket.socket(16, socket.SOCK_RAW, protocol) as client:
        client.settimeout(0.3)
        client.bind((0, 0))
        header = struct.pack("=IHHII", 16 + len(payload), kind, 0x301, 1, 0)
        client.send(header + payload)
        return client.recv(65536)


@probe("see the host's sockets by netlink")
def diagnosis() -> str | None:
    request = struct.pack("=BBBBI", 2, 6, 0, 0, 0xFFFFFFFF) + b"\0" * 48  # inet_diag_req_v2: all TCP sockets
    sockets = netlink(4, 20, request)
    return "its port" if struct.pack(">H", TARGETS["port"]) in sockets else None


@probe("see the host's devices by netlink")
def links() -> str | None:
    interfaces = netlink(0, 18, b"\0" * 16)  # RTM_GETLINK
    return "another device" if b"eth" in interfaces or b"ens" in interfaces or b"wlan" in interfaces else None


@each("ask the kernel's {} by netlink", {"audit": (9, 1000), "routing for a new address": (0, 20)}.items())
def ask(what: tuple[int, int]) -> str | None:
    answer = netlink(what[0], what[1], b"\0" * 16)
    code = struct.unpack("=i", answer[16:20])[0] if struct.unpack("=H", answer[4:6])[0] == 2 else 0
    return None if code < 0 else f"it answered {answer[:24]!r}"


@each(
    "hear the kernel's {} by netlink",
    {"device events": (15, 1), "audit records": (9, 1), "process events": (11, 1)}.items(),
)
def hear(what: tuple[int, int]) -> str | None:
    with socket.socket(16, socket.SOCK_RAW, what[0]) as client:
        client.settimeout(0.3)
        client.bind((0, what[1]))
        return f"heard {client.recv(4096)[:40]!r}"
