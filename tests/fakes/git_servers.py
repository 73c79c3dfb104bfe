"""Real git servers on loopback: sshd, nginx with git's own http backend, and a proxy that breaks connections."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import guarded
from tests.support.waiting import until

HTTP_BACKEND = "/usr/lib/git-core/git-http-backend"
USER, PASSWORD = "agent", "s3cret"
GIT_SHELL = 'git-shell -c "$SSH_ORIGINAL_COMMAND"'


def missing_programs() -> list[str]:
    """Return what these servers need and this machine does not have."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    absent = [
        name for name in ("sshd", "ssh", "ssh-keygen", "nginx", "fcgiwrap") if shutil.which(name, path=path) is None
    ]
    return absent + ([] if Path(HTTP_BACKEND).exists() else [HTTP_BACKEND])


def git(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run git as a person would and return what it printed."""
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"git {' '.join(arguments)}: {done.stderr}")
    return done.stdout.rstrip("\n")


def bare(path: Path) -> Path:
    """Make a bare repository as a host would have it."""
    git("init", "--quiet", "--bare", "--initial-branch=main", str(path))
    return path


def free_port() -> int:
    """Return a port nobody listens on, which the system gives to nobody who asks for any port within a minute.

    A connection to it has just been closed from its side (TIME_WAIT, RFC 9293): who names the port may listen there.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place: tuple[str, int] = listener.getsockname()
        with socket.create_connection(place), listener.accept()[0]:  # the side that accepted closes first
            return place[1]


def wait_for_port(port: int, process: subprocess.Popen) -> None:
    """Return once somebody listens; a server that ended says so."""

    def listens() -> bool:
        if process.poll() is not None:
            raise AssertionError(f"{process.args} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=20).close()
        except OSError:
            return False
        return True

    until(listens, why=f"nobody listens on {port}")


class SshServer:
    """A real sshd on loopback whose only key may only run git, or another forced command, and forward ports if told."""

    def __init__(
        self,
        folder: Path,
        *,
        protocol_v2: bool = True,
        forced: str = GIT_SHELL,
        port: int | None = None,
        forwarding: bool = False,
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        for name in ("host_key", "client_key"):
            if (folder / name).exists():
                continue
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        public = (folder / "client_key.pub").read_text()
        allowed = folder / "authorized_keys"
        command = forced.replace('"', '\\"')
        allowed.write_text(f'restrict{",port-forwarding" * forwarding},command="{command}" {public}')
        allowed.chmod(0o600)
        host = (folder / "host_key.pub").read_text().split()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host[0]} {host[1]}\n")
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder / 'host_key'}",
            f"AuthorizedKeysFile {allowed}",
            f"PidFile {folder / 'sshd.pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin yes",
            "MaxStartups 100",
            "MaxSessions 100",
            f"SetEnv HOME={folder}",  # nobody's shell start-up files, nobody's git configuration
            "AcceptEnv GIT_PROTOCOL" if protocol_v2 else "",
        ]
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        sshd = shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ["PATH"])
        assert sshd is not None
        with (folder / "sshd.log").open("wb") as log:
            self.process = guarded.start([sshd, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
        wait_for_port(self.port, self.process)

    def url(self, repository: Path) -> str:
        """Return the URL of a repository on this machine."""
        return f"ssh://{os.environ.get('USER') or _user()}@127.0.0.1:{self.port}{repository}"

    @property
    def command(self) -> str:
        """The ssh command a user would have configured; one connection is shared, as busy people do."""
        socket_path = self.folder / "mux"
        return (
            f"ssh -F none -i {self.folder / 'client_key'} -oIdentitiesOnly=yes -oBatchMode=yes "
            f"-oUserKnownHostsFile={self.folder / 'known_hosts'} "
            f"-oControlMaster=auto -oControlPath={socket_path} -oControlPersist=30"
        )

    def close(self) -> None:
        """Stop the server and the shared connection."""
        subprocess.run(
            [*self.command.split(), "-O", "exit", "-p", str(self.port), "127.0.0.1"], capture_output=True, check=False
        )
        guarded.stop(self.process)


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


class HttpServer:
    """nginx in front of git's own smart HTTP backend, with basic authentication.

    Args:
        folder: for its own files.
        root: of the repositories.
        certificate: and its key; None for a server without TLS.
    """

    def __init__(self, folder: Path, root: Path, certificate: tuple[Path, Path] | None = None) -> None:
        self.root = root
        tls = "" if certificate is None else f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
        self.port = free_port()
        (folder / "htpasswd").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
        gateway = folder / "fcgi.sock"
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(
            f"""{user}
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/body; fastcgi_temp_path {folder}/fcgi; proxy_temp_path {folder}/proxy;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; client_max_body_size 0;
  server {{
    listen 127.0.0.1:{self.port}{" ssl" if tls else ""};
    {tls}
    location / {{
      auth_basic "git"; auth_basic_user_file {folder}/htpasswd;
      fastcgi_param SCRIPT_FILENAME {HTTP_BACKEND};
      fastcgi_param GIT_PROJECT_ROOT {root};
      fastcgi_param GIT_HTTP_EXPORT_ALL "";
      fastcgi_param PATH_INFO $uri;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param REMOTE_USER $remote_user;
      fastcgi_param GIT_PROTOCOL $http_git_protocol;
      fastcgi_param HTTP_CONTENT_ENCODING $http_content_encoding;
      fastcgi_pass unix:{gateway};
    }}
  }}
}}
"""
        )
        with (folder / "fcgiwrap.log").open("wb") as log:
            self.gateway = guarded.start(
                ["fcgiwrap", "-f", "-c", "8", "-s", f"unix:{gateway}"],
                stderr=log,
                env={**os.environ, "PATH": "/usr/sbin:" + os.environ["PATH"]},
            )
        nginx = shutil.which("nginx", path="/usr/sbin:/sbin:" + os.environ["PATH"])
        assert nginx is not None
        self.process = guarded.start(
            [nginx, "-e", folder / "start.log", "-c", folder / "nginx.conf"], stderr=subprocess.DEVNULL
        )
        wait_for_port(self.port, self.process)
        until(gateway.exists, why="fcgiwrap does not listen")

    def url(self, repository: Path, port: int | None = None) -> str:
        """Return the URL of a repository below the root, without a password."""
        return f"http://127.0.0.1:{port or self.port}/{repository.relative_to(self.root)}"

    def close(self) -> None:
        """Stop both programs."""
        guarded.stop(self.process)
        guarded.stop(self.gateway)


HELPER = f"!f() {{ echo username={USER}; echo password={PASSWORD}; }}; f"


@dataclass
class Proxy:
    """A TCP proxy that can be told to misbehave on the next upload (`POST .../git-receive-pack`).

    Attributes:
        lose_reply: deliver the upload whole, then close without an answer.
        reset_after_bytes: pass so many bytes of the upload on, then reset.
        up_bytes_per_s: pass the upload on at this pace, in pieces of up to 64 KiB.
        down_bytes_per_s: pass all answers on at this pace, in pieces of up to 64 KiB.
        hold: wait for `release` before the upload is passed on.
        silent: accept everything, answer nothing.
    """

    target: int
    lose_reply: bool = False
    reset_after_bytes: int | None = None
    up_bytes_per_s: float | None = None
    down_bytes_per_s: float | None = None
    hold: bool = False
    silent: bool = False
    release: threading.Event = field(default_factory=threading.Event)
    holding: threading.Event = field(default_factory=threading.Event)
    uploads: int = 0
    bytes_down: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        # Packets and buffers of a line outside: on loopback the kernel takes megabytes before one byte has moved.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1460)
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._closing = False
        self._spawn(self._accept)

    def close(self) -> None:
        """Close everything."""
        self._closing = True
        self.release.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            _close(connection)

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            self._open += [client, server]
            swallow = threading.Event()
            self._spawn(self._up, client, server, swallow)
            self._spawn(self._down, server, client, swallow)

    def _up(self, client: socket.socket, server: socket.socket, swallow: threading.Event) -> None:
        budget: int | None = None
        pace: float | None = None
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.silent:
                    continue
                if b"/git-receive-pack HTTP" in data and data.startswith(b"POST"):
                    self.uploads += 1
                    if self.lose_reply:
                        swallow.set()
                    budget, pace = self.reset_after_bytes, self.up_bytes_per_s
                    if self.hold:
                        self.holding.set()
                        self.release.wait(240)
                if budget is not None:
                    server.sendall(data[:budget])
                    budget -= len(data)
                    if budget <= 0:
                        _close(client)
                        _close(server)
                        return
                else:
                    if pace is not None:
                        self.release.wait(len(data) / pace)
                    server.sendall(data)
        _close(server)

    def _down(self, server: socket.socket, client: socket.socket, swallow: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self.bytes_down += len(data)
                if swallow.is_set():
                    break
                if self.down_bytes_per_s is not None:
                    self.release.wait(len(data) / self.down_bytes_per_s)
                client.sendall(data)
        _close(client)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        connection.close()
