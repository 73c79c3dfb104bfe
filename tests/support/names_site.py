"""An internet of one machine in network namespaces of its own: no packet of what runs here leaves this machine.

`python -m tests.support.names_site SCRIPT` runs a script as root in a new network and mount namespace. There a second
namespace, behind a pair of virtual cables, is the internet: a public address answers in it over TLS for
`data.example.org`, by a certificate of an own authority, beside an address of a cloud's credentials. Names are resolved
by a hosts file of the namespace's own. Linux, root.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import runpy
import ssl
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PUBLIC, METADATA, OURS = "93.184.216.34", "169.254.169.254", "93.184.216.1"
HOSTS: Final = f"""127.0.0.1 localhost
{PUBLIC} data.example.org mirror.example.org
127.0.0.1 loop.example.org
{METADATA} metadata.example.org
{OURS} ours.example.org
10.0.0.1 inner.example.org
"""
_STARTED: Final = "KAKEYA_NAMES_SITE"


def sh(*argv: str, cwd: Path | None = None) -> str:
    """Run a program of the system; return what it printed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, cwd=cwd).stdout


def can_be_made() -> bool:
    """Return whether this user and kernel can make such a site."""
    if sys.platform != "linux" or os.getuid() != 0:
        return False
    words = "ip link set lo up && ip link add veth0 type veth peer name veth1"
    done = subprocess.run(["unshare", "--net", "sh", "-c", words], check=False, capture_output=True)
    return done.returncode == 0


def run_script(path: Path, *argv: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    """Run a Python file in a site of its own; return what it printed."""
    words = ["unshare", "--net", "--mount", sys.executable, "-m", "tests.support.names_site", str(path), *argv]
    environment = {**os.environ, _STARTED: "1"}
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=timeout_s, env=environment)


def lay_cables(internet_pid: int) -> None:
    """Join this namespace with that of a process, which gets the public address and that of the credentials."""
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    sh("ip", "link", "set", "veth1", "netns", str(internet_pid))
    sh("ip", "addr", "add", f"{OURS}/24", "dev", "veth0")
    sh("ip", "link", "set", "veth0", "up")
    there = ("nsenter", "--net", f"--target={internet_pid}", "ip")
    for words in (
        *(("link", "set", name, "up") for name in ("lo", "veth1")),
        *(("addr", "add", address, "dev", "veth1") for address in (f"{PUBLIC}/24", f"{METADATA}/16")),
    ):
        sh(*there, *words)
    sh("ip", "route", "add", f"{METADATA}/32", "dev", "veth0")
    sh("ip", "route", "add", "10.0.0.0/8", "dev", "veth0")


def make_authority(folder: Path) -> None:
    """Make an authority's certificate, ca.pem, and one that it gave to data.example.org, with its key, server.pem."""
    folder.mkdir()
    make = functools.partial(sh, "openssl", cwd=folder)
    make("ecparam", "-name", "prime256v1", "-genkey", "-out", "ca.key")
    make("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=test authority", "-days", "2", "-out", "ca.pem")
    make("ecparam", "-name", "prime256v1", "-genkey", "-out", "server.key")
    make("req", "-new", "-key", "server.key", "-subj", "/CN=data.example.org", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=DNS:data.example.org\n")
    make("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
         "-extfile", "names", "-out", "server.crt")  # fmt: skip
    (folder / "server.pem").write_text((folder / "server.key").read_text() + (folder / "server.crt").read_text())
    (folder / "ca.pem").chmod(0o644)


def make_pages(folder: Path) -> None:
    """Lay out an index with one package, a repository for git's plain protocol, and a file of 64 MiB."""
    simple = folder / "simple" / "tiny"
    simple.mkdir(parents=True)
    wheel = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(simple / wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    (simple / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    (folder / "large").write_bytes(bytes(64 << 20))
    work = folder / "work"
    sh("git", "init", "-q", str(work))
    (work / "README").write_text("hello\n")
    sh("git", "-C", str(work), "add", ".")
    sh("git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first")
    sh("git", "clone", "-q", "--bare", str(work), str(folder / "repository.git"))
    sh("git", "-C", str(folder / "repository.git"), "update-server-info")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        return


def serve(folder: str, certificate: str) -> None:
    """Be the internet: answer over TLS on port 443 of the public address, and in plain on 80 of every address."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()  # until the cables are laid
    handler = functools.partial(_Quiet, directory=folder)
    plain = http.server.ThreadingHTTPServer(("0.0.0.0", 80), handler)
    secure = http.server.ThreadingHTTPServer((PUBLIC, 443), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    for server in (plain, secure):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


@contextlib.contextmanager
def internet(folder: Path) -> Iterator[None]:
    """Have the internet there while the block lasts."""
    pages, certificate = str(folder / "pages"), str(folder / "authority" / "server.pem")
    words = f"from tests.support import names_site as s; s.serve({pages!r}, {certificate!r})"
    argv = ["unshare", "--net", sys.executable, "-c", words]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lay_cables(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        yield
        process.stdin.close()


def main() -> None:
    """Make the site in the namespaces that this process was started in, and run the script."""
    assert os.environ.pop(_STARTED, "") == "1", "start it with run_script: it changes the namespace that it is in"
    sh("mount", "--make-rprivate", "/")
    with tempfile.TemporaryDirectory(prefix="kakeya-site-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "hosts").write_text(HOSTS)
        (folder / "hosts").chmod(0o644)
        sh("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
        make_authority(folder / "authority")
        make_pages(folder / "pages")
        script, *argv = sys.argv[1:]
        sys.argv = [script, str(folder), *argv]
        with internet(folder):
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
