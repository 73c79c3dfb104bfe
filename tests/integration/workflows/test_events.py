"""The workflow's own steps, run for real pushes with GitHub's events: a request ends as a result, text stays text."""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.bus.views import RequestRef
from bridge.records.request import Workload
from tests.fakes.asking import make_request, push
from tests.fakes.token_git import HTTP_BACKEND, TokenGitServer
from tests.integration.workflows.harness import Job, evaluate, load, run_job, triggered_by_push
from tests.support.runner_site import ROOT, Site

EVENTS = Path(__file__).parents[2] / "data" / "github" / "events"
WORKFLOW = ROOT / ".github" / "workflows" / "mac-bridge.yml"
TOKEN = "ghs_" + "t" * 36
HOSTILE_LOG = (
    "::set-output name=x::y",
    "::add-path::/tmp/evil",
    "##[error]red",
    "@somebody",
    "::stop-commands::x",
    "\x1b[31mred",
)


class Hosted:
    """A remote that Actions watches: a clone with the workflow file, and the host it wakes."""

    def __init__(self, folder: Path, work: str = ":") -> None:
        folder.chmod(0o700)
        self.site = Site(folder, work=work)
        self.site.create_bus(wake="actions", request_form="workload")
        self.folder, self.remote = folder, folder / "bus.git"
        self.clone = folder / "clone"
        self.workflow = load(WORKFLOW)
        file = self.clone / ".github" / "workflows" / "mac-bridge.yml"
        file.parent.mkdir(parents=True)
        file.write_bytes(WORKFLOW.read_bytes())
        self.git("init", "-q", "-b", "main")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "begin")
        self.git("push", "-q", str(self.remote), "main")
        self._write_command()

    def _write_command(self, route: str | None = None) -> None:
        """Put `kakeya-runner` on a PATH of its own: the one installed on this host, with this host's policy."""
        self.site.policy()
        bin_folder = self.folder / "bin"
        bin_folder.mkdir(exist_ok=True)
        command = bin_folder / "kakeya-runner"
        own = f"--policy {self.folder}/mini.toml --state {self.folder}/state-mini --bus {route or self.site.route}"
        run = f'PYTHONPATH={ROOT} exec {sys.executable} -m bridge.cli.host.main "$verb" {own} "$@"'
        command.write_text(f"#!/bin/bash\nverb=$1; shift\n{run}\n")
        command.chmod(0o755)

    def only_over_http(self, server: TokenGitServer) -> None:
        """Let the host reach the bus only through a server that wants the job's token, as a hosting site does."""
        (server.folder / "bus.git").symlink_to(self.remote)
        self.git("config", "http.receivepack", "true", cwd=self.remote)
        helper = "!f() { echo username=x-access-token; echo password=$GH_TOKEN; }; f"
        self.git("config", "--file", str(self.folder / "gitconfig"), f"credential.{server.url}.helper", helper)
        self._write_command(f"{server.url}/bus.git")

    def write_stand_in(self) -> None:
        """Put a `kakeya-runner` on the PATH that writes down its words, each ended by a NUL, and does nothing."""
        (self.folder / "words").write_bytes(b"")
        command = self.folder / "bin" / "kakeya-runner"
        command.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" >> {self.folder}/words\n")

    def words(self) -> list[str]:
        """Return the words that the stand-in was given since the last time."""
        given = (self.folder / "words").read_bytes().decode().split("\0")[:-1]
        (self.folder / "words").write_bytes(b"")
        return given

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=cwd or self.clone, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def ask(self, **changes: Any) -> RequestRef:
        """Push a request over the clone's tree, as a requester does on such a bus."""
        commit = self.git("rev-parse", "HEAD")
        workload = Workload(commit=commit, tree=self.git("rev-parse", "HEAD^{tree}"), origin="", dirty=False)
        from bridge.bus import open_bus
        from bridge.system.clock import SystemClock

        bus = open_bus(self.site.route, repository=self.clone, state=self.folder / "asking", clock=SystemClock())
        return push(bus, make_request(bus.identity().bus_id, "count", workload=workload, **changes))

    def tip(self, ref: str) -> str:
        return self.git("rev-parse", ref, cwd=self.remote)

    def push_event(self, ref: str, before: str, after: str) -> dict[str, Any]:
        """Return GitHub's event for a push, its commits and changed files those of the real one."""
        event = json.loads((EVENTS / "push.json").read_text())
        event |= {"ref": ref, "before": before, "after": after}
        commits = []
        for oid in self.git("rev-list", "--reverse", f"{before}..{after}", cwd=self.remote).split():
            changed = self.git("show", "--format=", "--name-status", "--no-renames", oid, cwd=self.remote)
            commit = copy.deepcopy(event["head_commit"]) | {"id": oid, "added": [], "modified": [], "removed": []}
            commit["message"] = self.git("show", "-s", "--format=%B", oid, cwd=self.remote)
            for line in changed.splitlines():
                letter, path = line.split("\t", 1)
                commit[{"A": "added", "D": "removed"}.get(letter, "modified")].append(path)
            commits.append(commit)
        return event | {"commits": commits, "head_commit": commits[-1]}

    def triggers(self, event: dict[str, Any], *, skip: bool = True) -> bool:
        """Return whether GitHub would start the workflow for a push event; `skip` honours ``[skip ci]``."""
        if skip and "[skip ci]" in event["head_commit"]["message"]:
            return False
        changed = [path for commit in event["commits"] for kind in ("added", "modified", "removed")
                   for path in commit[kind]]  # fmt: skip
        return triggered_by_push(self.workflow, event["ref"].removeprefix("refs/heads/"), changed)

    def run(self, event: dict[str, Any], *, inputs: dict[str, str] | None = None, workflow: Any = None) -> Job:
        """Run the job that wakes this host, as the Actions runner would for this event."""
        github = {
            "event": event,
            "event_name": "push" if inputs is None else "workflow_dispatch",
            "ref": event["ref"],
            "ref_name": event["ref"].removeprefix("refs/heads/"),
            "token": TOKEN,
        }
        (self.folder / "summary.md").touch()
        environment = {
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig"),
        }
        job = run_job(
            workflow or self.workflow, "run", context={"github": github, "inputs": inputs or {}},
            environment=environment, cwd=self.folder,
        )  # fmt: skip
        for result in job.results:
            assert TOKEN not in result.output
        return job

    @property
    def pwned(self) -> list[Path]:
        return [path for path in self.folder.rglob("PWNED*") if "bus.git" not in path.parts]


@pytest.fixture
def hosted(tmp_path):
    return Hosted(tmp_path)


def request_event(hosted: Hosted, ref: RequestRef) -> dict[str, Any]:
    return hosted.push_event(ref.ref, hosted.git("rev-parse", "main"), ref.oid)


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Hosted, RequestRef, dict[str, Any], Job]:
    """Return a host that ran one request: a hostile log, an event with hostile texts, and the job that it woke."""
    lines = "\n".join(f"printf '%s\\n' '{line}'" for line in HOSTILE_LOG)
    hosted = Hosted(tmp_path_factory.mktemp("ran"), work=lines)
    ref = hosted.ask()
    event = request_event(hosted, ref)
    for commit in event["commits"]:
        commit["message"] += "\n::error::$(touch PWNED)"
    event["pusher"]["name"] = "$(touch PWNED)"
    event["repository"]["description"] = "`touch PWNED`"
    return hosted, ref, event, hosted.run(event)


def test_a_pushed_request_ends_as_a_result_on_its_branch(ran) -> None:
    hosted, ref, event, job = ran
    assert hosted.triggers(event)
    assert [result.exit_code for result in job.results] == [1], job.results  # the gate refuses the empty report
    assert hosted.site.ended(ref).reason == "gate_rejected"
    names = hosted.git("ls-tree", "-r", "--name-only", ref.ref, ".mac-bridge/result/", cwd=hosted.remote)
    assert ".mac-bridge/result/verdict.json" in names
    assert hosted.site.starts() == [ref.id]


@pytest.mark.ci
def test_a_dispatch_from_the_default_branch_takes_the_request_branch_as_data(hosted) -> None:
    first, second = hosted.ask(), hosted.ask()
    event = json.loads((EVENTS / "workflow_dispatch.json").read_text())
    inputs = {"request_branch": second.ref.removeprefix("refs/heads/"), "label": "kakeya-mac"}
    hosted.run(event | {"inputs": inputs}, inputs=inputs)
    assert hosted.site.ended(second).reason == "gate_rejected"
    assert hosted.site.claim(first) is None
    label = evaluate("inputs.label || 'kakeya-runner'", {"inputs": inputs})
    assert label == "kakeya-mac"


def test_a_published_result_starts_nothing_again_for_two_reasons(ran) -> None:
    hosted, ref, *_ = ran
    event = hosted.push_event(ref.ref, ref.oid, hosted.tip(ref.ref))
    changed = {path for commit in event["commits"] for path in commit["added"]}
    assert changed
    assert all(path.startswith(".mac-bridge/result/") for path in changed)
    assert not hosted.triggers(event, skip=False)  # by its paths alone
    assert "[skip ci]" in event["head_commit"]["message"]
    touched = copy.deepcopy(event)
    touched["commits"][0]["modified"] = [".mac-bridge/request.json"]
    assert hosted.triggers(touched, skip=False)
    assert not hosted.triggers(touched)  # by its message alone


@pytest.mark.ci
def test_the_same_event_again_runs_nothing_again(ran) -> None:
    hosted, ref, event, _ = ran
    again = hosted.run(event)
    assert [result.exit_code for result in again.results] == [0]
    assert hosted.site.starts() == [ref.id]


@pytest.mark.ci
def test_the_jobs_own_token_may_be_the_only_push_credential(hosted, missing) -> None:
    """It ends with the job: nothing that a later job could find lies on the host."""
    if not Path(HTTP_BACKEND).exists():
        missing("servers", f"{HTTP_BACKEND} is not installed")
    server = TokenGitServer(hosted.folder / "http", TOKEN)
    try:
        hosted.only_over_http(server)
        ref = hosted.ask()
        hosted.run(request_event(hosted, ref))
    finally:
        server.close()
    assert hosted.site.ended(ref).reason == "gate_rejected"
    assert server.refused > 0  # git asks without first
    files = [path for path in hosted.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


HOSTILE = (
    "mac-bridge/$(touch${IFS}PWNED1)",
    "mac-bridge/`touch${IFS}PWNED2`",
    'mac-bridge/";touch${IFS}PWNED3;"',
    "mac-bridge/';touch${IFS}PWNED4;'",
    "mac-bridge/x&&touch${IFS}PWNED5",
    "mac-bridge/--policy=PWNED6",
)


@pytest.fixture(scope="module")
def hosted_request(tmp_path_factory) -> tuple[Hosted, RequestRef]:
    """Return a host with one request, whose steps start a stand-in; the command itself is run in this process."""
    hosted = Hosted(tmp_path_factory.mktemp("asked"))
    hosted.write_stand_in()
    return hosted, hosted.ask()


def passed_on(hosted: Hosted, job: Job, data: str) -> None:
    """The step hands one word on, whatever it says, and the command starts nothing for it."""
    assert len(job.results) == 1
    verb, *words = hosted.words()
    assert (verb, words) == ("once", ["--branch", data])
    with contextlib.suppress(SystemExit):  # how words that make no command end
        hosted.site.run("once", "--bus", hosted.site.route, *words)
    assert hosted.pwned == []
    assert hosted.site.starts() == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_branch_name_is_a_name(hosted_request, name: str) -> None:
    hosted, ref = hosted_request
    hosted.git("update-ref", f"refs/heads/{name}", ref.oid, cwd=hosted.remote)  # git takes such names
    event = hosted.push_event(f"refs/heads/{name}", hosted.git("rev-parse", "main"), ref.oid)
    assert hosted.triggers(event)
    passed_on(hosted, hosted.run(event), name)


@pytest.mark.ci
@pytest.mark.parametrize(
    "data", [*HOSTILE, "x\ny", "--help", "--policy", "../../etc/passwd", "${{ github.token }}", "a" * 5000]
)
def test_a_hostile_dispatch_input_is_data(hosted_request, data: str) -> None:
    hosted, _ = hosted_request
    event = json.loads((EVENTS / "workflow_dispatch.json").read_text())
    passed_on(hosted, hosted.run(event, inputs={"request_branch": data}), data)


def test_the_harness_would_show_an_injection(hosted) -> None:
    """The same names in a script instead of a variable do what they say, so the tests above can fail."""
    planted = copy.deepcopy(hosted.workflow)
    hosted.write_stand_in()
    planted["jobs"]["run"]["steps"][0]["run"] = 'kakeya-runner once --branch "${{ github.ref_name }}"'
    event = json.loads((EVENTS / "push.json").read_text()) | {"ref": f"refs/heads/{HOSTILE[0]}"}
    hosted.run(event, workflow=planted)
    assert hosted.pwned != []


def test_payload_texts_and_log_lines_reach_neither_the_job_log_nor_its_summary(ran) -> None:
    hosted, ref, _, job = ran
    assert hosted.site.ended(ref)
    assert hosted.pwned == []
    log = hosted.git("show", f"{ref.ref}:.mac-bridge/result/log.txt", cwd=hosted.remote)
    assert "::set-output" in log  # the job did print it
    summary = (hosted.folder / "summary.md").read_text()
    assert ref.id in summary
    for text in (job.results[0].output, summary):
        for line in text.splitlines():
            assert not line.lstrip().startswith(("::", "##["))
        assert "\x1b" not in text
        assert "@somebody" not in text


def test_the_copy_job_reads_the_result_and_nothing_else(ran) -> None:
    hosted, ref, *_ = ran
    described = hosted.workflow["jobs"]["copy"]
    assert described["runs-on"].startswith("ubuntu-")
    assert described["permissions"] == {"contents": "read"}
    checkout, upload = (step["with"] for step in described["steps"])
    assert checkout["persist-credentials"] is False
    assert not any("run" in step for step in described["steps"])
    paths = hosted.git("ls-tree", "-r", "--name-only", ref.ref, checkout["sparse-checkout"], cwd=hosted.remote)
    assert f"{upload['path']}/manifest.json" in paths.splitlines()
