"""A real git-lfs server on loopback: batch API, basic transfer, basic authentication, and ways to misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

USER, PASSWORD = "mini", "l4rge"
MEDIA = "application/vnd.git-lfs+json"


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    authorization: str | None


@dataclass
class LfsServerFake:
    """Serves objects of a folder.

    Attributes:
        wrong_bytes: serve other bytes of the same length.
        cut: leave out so many bytes at the end, though Content-Length says otherwise.
        bomb: go on with this many bytes after the object.
        trickle_s: wait so long between single bytes.
        redirect: answer downloads with a redirect to this origin.
        batch_redirect: answer the batch call with one.
        broken: status that answers every call, 0 for none.
        objects_at: origin written into download addresses instead of this server's own.
        headers: put into download actions.
        requests: every request.
    """

    folder: Path
    wrong_bytes: bool = False
    cut: int = 0
    bomb: int = 0
    trickle_s: float = 0.0
    redirect: str = ""
    batch_redirect: str = ""
    broken: int = 0
    objects_at: str = ""
    garbage: bool = False
    needs_credentials: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        outer = self

        class Handler(_Handler):
            server_fake = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.origin}/owner/repo.git/info/lfs"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, data: bytes) -> str:
        """Store an object and return its oid."""
        oid = hashlib.sha256(data).hexdigest()
        (self.folder / oid).write_bytes(data)
        return oid

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_fake: LfsServerFake

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        fake = self._note()
        if not self._may():
            return
        batch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if fake.batch_redirect:
            self._redirect(fake.batch_redirect)
        elif fake.garbage:
            self._answer(b'{"objects": [{"oid": 1}]}', MEDIA)
        else:
            objects = [self._object(item, batch["operation"]) for item in batch["objects"]]
            self._answer(json.dumps({"transfer": "basic", "objects": objects}).encode(), MEDIA)

    def do_GET(self) -> None:
        fake = self._note()
        if fake.redirect:
            self._redirect(fake.redirect)
            return
        if not fake.headers and not fake.objects_at and not self._may():
            return
        data = (fake.folder / self.path.rsplit("/", 1)[1]).read_bytes()
        length = len(data)
        if fake.wrong_bytes:
            data = bytes(255 - byte for byte in data)
        data = data[: length - fake.cut] + b"\0" * fake.bomb
        self.send_response(200)
        if not fake.bomb:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        try:
            for piece in [data] if not fake.trickle_s else [data[at : at + 1] for at in range(len(data))]:
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(fake.trickle_s)
        except OSError:
            return  # the client had enough

    def do_PUT(self) -> None:
        fake = self._note()
        if self._may():
            fake.add(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(b"", "text/plain")

    def _note(self) -> LfsServerFake:
        self.server_fake.requests.append(Asked(self.command, self.path, self.headers["Authorization"]))
        return self.server_fake

    def _may(self) -> bool:
        if self.server_fake.broken:
            self.send_response(self.server_fake.broken)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return False
        expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if not self.server_fake.needs_credentials or self.headers["Authorization"] == expected:
            return True
        self.send_response(401)
        self.send_header("LFS-Authenticate", 'Basic realm="lfs"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def _object(self, item: dict[str, object], operation: str) -> dict[str, object]:
        fake = self.server_fake
        there = (fake.folder / str(item["oid"])).exists()
        entry: dict[str, object] = {"oid": item["oid"], "size": item["size"]}
        if operation == "download" and not there:
            return {**entry, "error": {"code": 404, "message": "Object does not exist"}}
        if operation == "upload" and there:
            return entry
        action: dict[str, object] = {"href": f"{fake.objects_at or fake.origin}/objects/{item['oid']}"}
        if fake.headers:
            action["header"] = fake.headers
        return {**entry, "actions": {operation: action}}

    def _redirect(self, to: str) -> None:
        self.send_response(302)
        self.send_header("Location", f"{to}{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
