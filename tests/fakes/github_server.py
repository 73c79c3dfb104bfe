"""A stateful GitHub REST server on loopback; every request and response is checked against GitHub's own description.

Faults are planted per path: a status, a dropped connection, or a number of failures before success.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes import openapi

OWNER, REPOSITORY = "kakeya-tests", "bus"
WORKFLOW = "github-actions[bot]"
PERMISSIONS = {"admin": False, "pull": True, "push": True}
PAGE_MAX = 100


@dataclass
class Fault:
    """What to answer instead of the truth, `times` times."""

    status: int
    times: int = 1_000_000
    message: str = "planted"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """The site: mutable, guarded by one lock."""

    private: bool = True
    runs: list[dict[str, Any]] = field(default_factory=list)
    runners: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    login: str | None = "owner"  # None: a workflow's own token, which may not ask who it is
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    pulls: list[dict[str, Any]] = field(default_factory=list)
    not_modified: int = 0
    authorizations: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class GitHubServer:
    """The running fake: `url` for the client, `state` for the test."""

    def __init__(self) -> None:
        self.state = State()
        server = self

        class Handler(_Handler):
            fake = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def environ(self) -> dict[str, str]:
        """Variables that lead a client here."""
        return {
            "KAKEYA_GITHUB_REPOSITORY": f"{OWNER}/{REPOSITORY}",
            "KAKEYA_GITHUB_API": self.url,
            "GH_TOKEN": "ghp_" + "t" * 36,
        }

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def add_run(self, branch: str, status: str = "queued", conclusion: str | None = None, minute: int = 0) -> int:
        """Add a workflow run and return its id."""
        with self.state.lock:
            run_id = 1000 + len(self.state.runs)
            self.state.runs.append(
                openapi.github().example(
                    "workflow-run",
                    self.url,
                    id=run_id,
                    head_branch=branch,
                    status=status,
                    conclusion=conclusion,
                    path=".github/workflows/mac-bridge.yml",
                    url=f"{self.url}/repos/{OWNER}/{REPOSITORY}/actions/runs/{run_id}",
                    html_url=f"{self.url}/{OWNER}/{REPOSITORY}/actions/runs/{run_id}",
                    cancel_url=f"{self.url}/repos/{OWNER}/{REPOSITORY}/actions/runs/{run_id}/cancel",
                    created_at=f"2026-01-02T03:{minute:02d}:00Z",
                )
            )
            return run_id

    def add_runner(self, name: str, *, online: bool, busy: bool, labels: tuple[str, ...]) -> None:
        """Register a self-hosted runner."""
        with self.state.lock:
            self.state.runners.append(
                {
                    "id": len(self.state.runners) + 1,
                    "name": name,
                    "os": "macos",
                    "status": "online" if online else "offline",
                    "busy": busy,
                    "labels": [{"id": i, "name": label, "type": "custom"} for i, label in enumerate(labels)],
                }
            )

    def add_pull(self, number: int, branch: str, commit: str) -> None:
        """Open a pull request."""
        with self.state.lock:
            pull = openapi.github().example("pull-request-simple", self.url)
            pull |= {"number": number, "state": "open", "html_url": f"{self.url}/{OWNER}/{REPOSITORY}/pull/{number}"}
            pull["head"] = {**pull["head"], "ref": branch, "sha": commit}
            self.state.pulls.append(pull)


class RefusalError(Exception):
    """What GitHub answers and does not describe for each path: a thing that does not exist."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


@contextmanager
def serving() -> Iterator[GitHubServer]:
    """Run a fake; on the way out, fail if anything broke GitHub's description."""
    server = GitHubServer()
    try:
        yield server
    finally:
        server.close()
    assert server.state.violations == []


class _Handler(BaseHTTPRequestHandler):
    fake: GitHubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Stay silent."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def _serve(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state = self.fake.state
        with state.lock:
            state.requests.append((self.command, self.path))
            state.authorizations.add(self.headers.get("Authorization", ""))
            call = f"{self.command} {url.path}"
            fault = next((f for key, f in state.faults.items() if key in call and f.times > 0), None)
            if fault is not None:
                fault.times -= 1
                if fault.status == 0:
                    self.close_connection = True
                    self.connection.close()
                    return
                self._answer(fault.status, {"message": fault.message, "documentation_url": "https://x"}, fault.headers)
                return
            try:
                openapi.github().check_request(self.command, url.path, url.query, body)
                status, value, headers = self._route(url.path, parse_qs(url.query), json.loads(body or b"null"))
                openapi.github().check_response(self.command, url.path, status, value)
            except RefusalError as refusal:
                status, value, headers = refusal.status, {"message": "Not Found", "documentation_url": "https://x"}, {}
            except Exception as error:  # noqa: BLE001  the client must see a fault of the fake as a fault of the test
                state.violations.append(f"{self.command} {self.path}: {error!r}")
                status, value, headers = 500, {"message": str(error)}, {}
        self._answer(status, value, headers)

    def _answer(self, status: int, value: Any, headers: dict[str, str]) -> None:
        data = b"" if status == 204 else json.dumps(value).encode()
        tag = f'"{hashlib.sha256(data).hexdigest()}"'
        if status == 200 and self.command == "GET":
            headers = {**headers, "ETag": tag}
            if self.headers.get("If-None-Match") == tag:
                self.fake.state.not_modified += 1
                status, data = 304, b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _route(  # noqa: C901  one case a path of the site
        self, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any, dict[str, str]]:
        state = self.fake.state
        prefix = f"/repos/{OWNER}/{REPOSITORY}"
        rest = path.removeprefix(prefix)
        parts = rest.strip("/").split("/")
        match (self.command, *parts):
            case ("GET", ""):
                return (
                    200,
                    self._object(
                        "full-repository",
                        "",
                        name=REPOSITORY,
                        full_name=f"{OWNER}/{REPOSITORY}",
                        private=state.private,
                        default_branch="main",
                        permissions=PERMISSIONS,
                    ),
                    {},
                )
            case ("GET", "user"):
                if state.login is None:
                    raise RefusalError(403)
                return 200, openapi.github().example("public-user", self.fake.url, login=state.login), {}
            case ("GET", "actions", "runs"):
                chosen = [run for run in state.runs if _matches(run, query)]
                return self._page("workflow_runs", sorted(chosen, key=lambda run: -run["id"]), path, query)
            case ("GET", "actions", "runs", run_id):
                return 200, next(run for run in state.runs if run["id"] == int(run_id)), {}
            case ("POST", "actions", "runs", run_id, "cancel"):
                run = next((run for run in state.runs if run["id"] == int(run_id)), None)
                if run is None:
                    raise RefusalError(404)
                if run["status"] == "completed":
                    return 409, {"message": "Cannot cancel a workflow run that is completed."}, {}
                run.update(status="completed", conclusion="cancelled")
                return 202, {}, {}
            case ("GET", "actions", "runners"):
                return self._page("runners", state.runners, path, query)
            case ("GET", "commits", sha):
                return 200, self._object("commit", f"commits/{sha}", sha=sha), {}
            case ("GET", "commits", sha, "status"):
                newest = {row["context"]: self._object("simple-commit-status", f"statuses/{sha}", target_url=None) | row
                          for row in state.statuses if row["sha"] == sha}  # fmt: skip
                listed = [{k: v for k, v in status.items() if k != "sha"} for status in newest.values()]
                repository = self._object("minimal-repository", "")
                fields = {"sha": sha, "repository": repository, "statuses": listed, "total_count": len(listed)}
                return 200, self._object("combined-commit-status", f"commits/{sha}/status", **fields), {}
            case ("POST", "statuses", sha):
                if not sha.strip("0"):
                    raise RefusalError(422)
                state.statuses.append({"sha": sha, **body})
                return 201, self._object("status", f"statuses/{sha}", **body), {}
            case ("GET", "pulls"):
                return self._page(None, state.pulls, path, query)
            case ("GET", "pulls", number):
                return 200, self._pull(int(number)), {}
            case ("GET", "issues", number, "comments"):
                return self._page(None, state.comments[int(number)], path, query)
            case ("POST", "issues", number, "comments"):
                if number == "0":
                    raise RefusalError(404)
                comment_id = 1 + sum(map(len, state.comments.values()))
                author = openapi.github().example("simple-user", self.fake.url, login=state.login or WORKFLOW)
                comment = self._object(
                    "issue-comment", f"issues/comments/{comment_id}", id=comment_id, body=body["body"], user=author
                )
                state.comments[int(number)].append(comment)
                return 201, comment, {}
            case ("PATCH", "issues", "comments", comment_id):
                comment = next(c for cs in state.comments.values() for c in cs if c["id"] == int(comment_id))
                comment["body"] = body["body"]
                return 200, comment, {}
        raise AssertionError(f"{self.command} {path} is not served")

    def _object(self, schema: str, path: str, /, **fields: Any) -> dict[str, Any]:
        url = f"{self.fake.url}/repos/{OWNER}/{REPOSITORY}/{path}".rstrip("/")
        return openapi.github().example(schema, self.fake.url, url=url, **fields)

    def _pull(self, number: int) -> dict[str, Any]:
        issue = f"{self.fake.url}/repos/{OWNER}/{REPOSITORY}/issues/{number}"
        return self._object("pull-request", f"pulls/{number}", number=number, issue_url=issue)

    def _page(
        self, key: str | None, rows: list[dict[str, Any]], path: str, query: dict[str, list[str]]
    ) -> tuple[int, Any, dict[str, str]]:
        size = min(PAGE_MAX, int(query.get("per_page", ["30"])[0]))
        page = int(query.get("page", ["1"])[0])
        piece = rows[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(rows):
            others = "&".join(f"{name}={values[0]}" for name, values in query.items() if name != "page")
            headers["Link"] = f'<{self.fake.url}{path}?{others}&page={page + 1}>; rel="next"'
        return 200, (piece if key is None else {"total_count": len(rows), key: piece}), headers


def _matches(run: dict[str, Any], query: dict[str, list[str]]) -> bool:
    branch, status = query.get("branch"), query.get("status")
    return (branch is None or run["head_branch"] == branch[0]) and (status is None or run["status"] == status[0])
