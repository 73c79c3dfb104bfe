"""A loopback git server over HTTP that answers whoever brings its token, as a site does for private repositories."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

HTTP_BACKEND = "/usr/lib/git-core/git-http-backend"


class TokenGitServer:
    """The running server; `refused` counts requests without the token."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder, self.refused = folder, 0
        folder.mkdir()
        self.expected = "Basic " + base64.b64encode(f"x-access-token:{token}".encode()).decode()
        server = self

        class Handler(_Handler):
            site = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def add(self, name: str, source: Path) -> None:
        """Serve a copy of a repository under `owner/name`."""
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        command = ["git", "clone", "-q", "--bare", "--no-hardlinks", str(source), str(target)]
        subprocess.run(command, check=True, timeout=240)
        option = ["git", "-C", str(target), "config", "uploadpack.allowAnySHA1InWant", "true"]
        subprocess.run(option, check=True, timeout=240)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    site: TokenGitServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != self.site.expected:
            self.site.refused += 1
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        url = urlsplit(self.path)
        own = {
            "GIT_PROJECT_ROOT": str(self.site.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            [HTTP_BACKEND], input=body, env={**os.environ, **own}, capture_output=True, timeout=240, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
