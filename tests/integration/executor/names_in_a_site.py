"""What runs by names reach in a site of their own; started by test_names_in_a_site.py, prints JSON.

argv: the site's folder, and what to do: `clients` or `ways`.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from pathlib import Path

from bridge.executor.local import LocalExecutor
from bridge.records.jobspec import EnvironmentVariable, SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import OTHER_UID, Jobs
from tests.support.names_site import METADATA, OURS, PUBLIC

NAMES = ("data.example.org", "loop.example.org", "metadata.example.org", "ours.example.org", "inner.example.org:80")
CLIENTS = """
import os, subprocess, sys
pip = "-m pip download -q --disable-pip-version-check --no-deps --index-url https://data.example.org/simple/ tiny"
subprocess.run([sys.executable, *pip.split()], check=True)
subprocess.run(["git", "clone", "-q", "https://data.example.org/repository.git", "cloned"], check=True)
print(os.path.getsize("tiny-1.0-py3-none-any.whl") > 0, open("cloned/README").read().strip())
"""
PROBES = r"""
import json, os, socket
def connect(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(3)
        client.connect(address)
    return "connected"
def ask(target, then=None):
    with socket.create_connection(("127.0.0.1", 3128), 20) as client:
        client.sendall(("CONNECT %s HTTP/1.1\r\n\r\n" % target).encode())
        answer = client.recv(1000).decode("ascii", "replace")
        if answer.startswith("HTTP/1.1 200 ") and then is not None:
            client.sendall(then)
            return "sent, answered %r" % client.recv(1000)[:40]
        return answer.split("\r\n")[0] + " " + answer.rpartition("\r\n\r\n")[2].strip()
def outcome(action, *arguments):
    try:
        return action(*arguments)
    except OSError as error:
        return "refused: " + type(error).__name__
plan = json.loads(open("plan").read())
print(json.dumps({
    "direct": {address: outcome(connect, (address, port)) for address in plan["addresses"] for port in (80,)},
    "loopback": outcome(connect, ("127.0.0.1", plan["port"])),
    "abstract": outcome(connect, "\0" + plan["abstract"], socket.AF_UNIX),
    "devices": sorted(name for _, name in socket.if_nameindex()),
    "proxy": {target: outcome(ask, target) for target in plan["targets"]},
    "plain": outcome(ask, "data.example.org:443", b"GET / HTTP/1.1\r\n\r\n"),
    "lookup": outcome(socket.getaddrinfo, "data.example.org", 443),
}))
"""


def variables(folder: Path) -> tuple[EnvironmentVariable, ...]:
    names = ("PIP_CERT", "GIT_SSL_CAINFO", "SSL_CERT_FILE")
    value = str(folder / "authority" / "ca.pem")
    return tuple(EnvironmentVariable(name=name, value=value, origin="policy", secret=False) for name in names)


def run(folder: Path, network, *, program=None, argv=None, prepare=None) -> dict[str, object]:
    """Run one command by names as an ordinary user; return its log and what its record says."""
    jobs = Jobs(LocalExecutor(SystemClock()), Path(tempfile.mkdtemp(dir=folder)), "other_user")
    sandbox = SandboxSpec(
        mode="required", uid=OTHER_UID, network=network, read_only=(str(folder / "authority" / "ca.pem"),)
    )
    spec = jobs.spec(
        *(() if program is None else (program,)), argv=argv, sandbox=sandbox, environment=variables(folder),
        code="request", outputs=(),
    )  # fmt: skip
    execution = jobs.execute(spec, prepare=prepare)
    return {
        "log": execution.log.decode(),
        "ok": execution.ok,
        "message": execution.message,
        "exit": execution.program_exit,
        "sandbox": execution.sandbox.model_dump(mode="json"),
    }


def clients(folder: Path) -> dict[str, object]:
    """Download a package and clone a repository with the programs that people use."""
    return run(folder, ("data.example.org",), argv=[(sys.executable, "-I", "-c", CLIENTS)])


def ways(folder: Path) -> dict[str, object]:
    """Try the ways past the proxy and through it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0kakeya-site")
        abstract.listen()
        plan = {
            "addresses": [PUBLIC, METADATA, OURS],
            "port": server.getsockname()[1],
            "abstract": "kakeya-site",
            "targets": [
                *(f"{name}:443" for name in ("data.example.org", "loop.example.org", "metadata.example.org")),
                *("ours.example.org:443", "inner.example.org:80", "mirror.example.org:443", f"{PUBLIC}:443"),
            ],
        }

        def prepare(directory):
            (directory.work / "plan").write_text(json.dumps(plan))

        networks = {"names": NAMES, "internet": "internet", "none": False}
        return {name: run(folder, network, program=PROBES, prepare=prepare) for name, network in networks.items()}


if __name__ == "__main__":
    action = {"clients": clients, "ways": ways}[sys.argv[2]]
    print(json.dumps(action(Path(sys.argv[1]))))
