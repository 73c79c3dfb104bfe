"""What the MCP Inspector, a client that nobody here wrote, makes of the tools of `kakeya-mac mcp` over stdio.

Each call is a process of the inspector that starts a server of its own, in one of two eras of the protocol in turns,
so that every call takes up what another left. A bus in a folder, a real runner whose program counts its starts.
Counts, not seconds. Needs node and npx; the inspector comes from npm and is in no extra.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study
from tests.fakes.clone import Clone
from tests.support.runner_site import Site

PACKAGE = "@modelcontextprotocol/inspector@2.12.0"
ERAS = ("legacy", "modern")
TOOL = "run_count"
CACHE = Path.home() / ".npm"  # of this user, so that a new clone's first call installs nothing
NPM = {"npm_config_cache": str(CACHE), "npm_config_loglevel": "error", "npm_config_update_notifier": "false"}
CONNECT_MS = "120000"  # a bound for a broken server only
LOAD, AT_ONCE = 100, 10
NOBODY = "a" * 26
LONGEST = "x" * 100_000  # of one argument of a process Linux takes 128 KiB
ENDED_POLLS = 20
ODD: dict[str, tuple[str, object]] = {
    "a tool of nobody's": ("no-such-tool", {}),
    "a number for an id": ("status", {"id": 7}),
    "an id of nobody's": ("status", {"id": NOBODY}),
    "an option for an id": ("status", {"id": "--help"}),
    "no id": ("cancel", {}),
    "a property too many": ("runs", {"limit": 3, "sudo": True}),
    "a long text": ("quote", {"id": LONGEST}),
    "another script": ("logs", {"id": "日本語🙂"}),
    "null": ("verify", {"id": None}),
    "a list": ("compare", {"a": ["@last"]}),
    "more than the most": ("wait", {"id": "@last", "seconds": 10**9}),
    "a preset of nobody's": ("sweep", {"preset": "no-such-preset"}),
    "a parameter of nobody's": (TOOL, {"params": {"x; touch /tmp/x": "$(id)"}}),
    "an option for a parameter": ("sweep", {"preset": "count", "values": {"--new": ["--queue"]}}),
}


class Inspector:
    """Calls of one requester, each a process of the inspector.

    Args:
        clone: where servers are started.
        options: of `kakeya-mac mcp`.
    """

    def __init__(self, clone: Clone, *options: str) -> None:
        self._clone = clone
        self._options = options
        self._eras = itertools.cycle(ERAS)

    def ask(self, method: str, *words: str) -> Row:
        """Call a method; return era, exit code, what the inspector said and the result, None where there is none."""
        era = next(self._eras)
        environment = self._clone.env | {"PYTHONPATH": str(ROOT)}
        shown = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
        server = (sys.executable, "-m", "bridge.cli.mac.main", "mcp", *self._options)
        how = ("--cli", "--format", "json", "--protocol-era", era, "--connect-timeout", CONNECT_MS)
        done = subprocess.run(
            ("npx", "--yes", PACKAGE, *how, "--method", method, *words, *shown, "--", *server),
            cwd=self._clone.top, env=environment | NPM, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        result = json.loads(done.stdout)["result"] if done.stdout.strip() else None
        return {"era": era, "exit code": done.returncode, "said": done.stderr.strip(), "result": result}

    def call(self, tool: str, arguments: object, *words: str) -> Row:
        """Call a tool."""
        return self.ask("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments), *words)


@contextmanager
def served(folder: Path) -> Iterator[tuple[Inspector, Site]]:
    """Return the inspector of a requester, and the site of a runner that serves its bus."""
    folder.chmod(0o755)  # a root runner's programs run as another user
    (folder / "host").mkdir(mode=0o755)
    site = Site(folder / "host")
    site.create_bus()
    runner = site.start("serve", "--bus", site.route)
    try:
        site.until(lambda: site.requester().read_beacons(), "the runner does not start")
        yield Inspector(Clone(folder / "requester"), "--bus", site.route), site
    finally:
        runner.terminate()
        runner.wait(timeout=120)


def _listed(folder: Path) -> list[Row]:
    """List tools and resources of a bus, and the tools of every installed preset, with the inspector's own checks."""
    rows: list[Row] = []
    with served(folder) as (inspector, _):
        for what, asked in (
            ("a bus", inspector),
            ("this machine, every installed preset", Inspector(Clone(folder / "other"))),
        ):
            for _era in ERAS:
                found = asked.ask("tools/list", "--strict")
                tools = [] if found["result"] is None else found["result"]["tools"]
                rows.append(_row(f"tools of {what}", found) | {"count": len(tools)})
        for method, key in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")):
            found = inspector.ask(method)
            rows.append(_row(method, found) | {"count": len((found["result"] or {}).get(key, []))})
    return rows


def _run(folder: Path) -> list[Row]:
    """Start a run, wait for its end, and read what came of it.

    Raises:
        RuntimeError: it does not begin, or does not end.
    """
    with served(folder) as (inspector, site):
        sent = inspector.call(TOOL, {})
        if sent["result"] is None:
            raise RuntimeError(f"{TOOL} was not answered: {sent}")
        run_id = json.loads(sent["result"]["content"][0]["text"])["id"]
        rows = [_row(TOOL, sent)]
        for _ in range(ENDED_POLLS):
            waited = inspector.call("wait", {"id": run_id})
            rows.append(_row("wait", waited))
            if json.loads(waited["result"]["content"][0]["text"]).get("terminal"):
                break
        else:
            raise RuntimeError(f"{run_id} did not end: {waited}")
        about = {"id": run_id}
        calls = dict.fromkeys(("status", "logs", "result", "quote", "verify", "cancel"), about)
        calls |= {"runs": {}, "runners": {}, "doctor": {}, "compare": {"a": run_id, "b": run_id}}
        rows += [_row(tool, inspector.call(tool, arguments)) for tool, arguments in calls.items()]
        for kind in ("document", "log", "reports", "nothing"):
            uri = f"kakeya://run/{run_id}/{kind}"
            rows.append(_row(f"resource {kind}", inspector.ask("resources/read", "--uri", uri)))
        return [*rows, {"what": "starts of the program", "count": len(set(site.starts()))}]


def _odd(folder: Path) -> list[Row]:
    """Call tools with what no schema takes, and then one that works; nothing is sent."""
    with served(folder) as (inspector, site):
        rows = [_row(name, inspector.call(tool, arguments)) for name, (tool, arguments) in ODD.items()]
        rows.append(_row("then runs", inspector.call("runs", {})))
        return [*rows, {"what": "requests on the bus", "count": len(site.requester().snapshot().requests)}]


def _load(folder: Path) -> list[Row]:
    """Call one server many times at once."""
    with served(folder) as (inspector, _):
        words = ("--load", "--load-requests", str(LOAD), "--load-concurrency", str(AT_ONCE))
        rows = []
        for _era in ERAS:
            found = inspector.call("runs", {}, *words)
            counts = {key: found["result"][key] for key in ("requests", "ok", "toolErrors", "errors")}
            rows.append(_row(f"runs, {AT_ONCE} at once", found) | counts)
        return rows


def _row(what: str, found: Row) -> Row:
    """Return what is kept of a call; `error` says whether the answer is one, or none came."""
    result: dict[str, Any] | None = found["result"]
    size = 0 if result is None else len(json.dumps(result, ensure_ascii=False).encode())
    error = result is None or bool(result.get("isError"))
    kept = {"what": what, "era": found["era"], "exit code": found["exit code"], "error": error, "bytes": size}
    return kept | ({"said": found["said"][:400]} if found["said"] else {})


CASES: dict[str, Callable[[Path], list[Row]]] = {
    "tools and resources are listed": _listed,
    "a run from its call to its quote": _run,
    "odd arguments": _odd,
    "many calls at once": _load,
}


def _install() -> None:
    """Have npx fetch the inspector once, however long that takes.

    Raises:
        subprocess.CalledProcessError: it cannot be had.
    """
    subprocess.run(
        ("npx", "--yes", PACKAGE, "--cli", "--version"), check=True, capture_output=True, env={**os.environ, **NPM}
    )


def cases() -> Sequence[str]:
    """Return the situations."""
    return list(CASES)


def run(case: str) -> list[Row]:
    """Try one situation on a new bus."""
    _install()
    with tempfile.TemporaryDirectory(prefix="kakeya-inspector-") as folder:
        return CASES[case](Path(folder))


STUDY = Study("inspector", "What does the MCP Inspector make of the tools?", cases, run)
