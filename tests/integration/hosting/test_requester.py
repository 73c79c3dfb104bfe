"""`kakeya-mac` on a bus that Actions wakes: GitHub's side is shown and cancelled, and nothing depends on it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import install_remedy
from tests.fakes.github_server import OWNER, REPOSITORY, Fault, GitHubServer, serving
from tests.fakes.requester import Ran, Requester
from tests.fakes.scripted_host import ScriptedHost

ROOT = Path(__file__).parents[3]
SECRET = "ghp_" + "s" * 36
WAKE = {"wake": "actions", "request_form": "manifest"}
FAULTS = [0, 401, 403, 404, 409, 422, 429, 500, 502, 503]


@pytest.fixture
def server():
    with serving() as running:
        yield running


class Place:
    """A requester, a host and GitHub; every output is searched for the token."""

    def __init__(self, folder, server: GitHubServer, record: dict | None = None) -> None:
        self.server = server
        self.asking = Requester(folder, record=WAKE if record is None else record)
        self.asking.environment |= {
            "KAKEYA_GITHUB_REPOSITORY": f"{OWNER}/{REPOSITORY}",
            "KAKEYA_GITHUB_API": server.url,
            "GH_TOKEN": SECRET,
        }
        self.host = ScriptedHost(self.asking.bus, self.asking.clock)
        self.asking.pin(self.host.sign())

    def run(self, *words: str) -> Ran:
        ran = self.asking.run(*words)
        assert SECRET not in ran.out + ran.err
        return ran

    def send(self) -> tuple[str, str]:
        """Send a request; return its id and its branch."""
        run_id = self.run("run", "mlx-env-probe").out.strip()
        return run_id, self.host.ref(run_id).ref.removeprefix("refs/heads/")


@pytest.fixture
def place(tmp_path, server):
    return Place(tmp_path, server)


def test_status_shows_the_page_the_place_in_the_queue_and_the_runners(place) -> None:
    run_id, branch = place.send()
    place.server.add_run("mac-bridge/other", minute=1)
    place.server.add_run(branch, minute=2)
    place.server.add_runner("mac", online=False, busy=False, labels=("kakeya-mac",))
    ran = place.run("status", run_id)
    assert ran.code == 0
    (line,) = [line for line in ran.out.splitlines() if line.startswith("actions")]
    assert "queued on GitHub, 1 before it, runner mac offline, http" in line
    document = place.run("status", run_id, "--json").document
    assert document["actions"] == {
        "url": f"{place.server.url}/{OWNER}/{REPOSITORY}/actions/runs/1001",
        "status": "queued",
        "conclusion": None,
        "ahead": 1,
        "runners": [{"name": "mac", "online": False, "busy": False, "labels": ["kakeya-mac"]}],
    }


def test_a_wait_says_why_nothing_happens_in_the_words_of_github(place) -> None:
    clock, host = place.asking.clock, place.host
    clock.plan(5.0, lambda: place.server.add_run(host.ref(host.newest()).ref.removeprefix("refs/heads/")))
    clock.plan(65.0, lambda: host.claim(host.newest()))
    clock.plan(66.0, lambda: host.start(host.newest()))
    clock.plan(70.0, lambda: host.finish(host.newest()))
    ran = place.run("run", "mlx-env-probe", "--wait")
    assert ran.code == 0
    assert "00:30 queued: queued on GitHub, next in its queue, no runner is registered, http" in ran.err
    assert any(line.startswith("actions") for line in ran.out.splitlines())
    assert place.server.state.not_modified > 0  # looks after the first ask by ETag


def test_a_long_queue_and_many_runners_are_read_over_all_pages(place) -> None:
    run_id, branch = place.send()
    for minute in range(45):
        place.server.add_run(f"mac-bridge/other-{minute}", minute=minute)
    place.server.add_run(branch, minute=50)
    for number in range(35):
        place.server.add_runner(f"mac-{number}", online=True, busy=True, labels=())
    shown = place.run("status", run_id, "--json").document["actions"]
    assert (shown["ahead"], len(shown["runners"])) == (45, 35)


def test_wait_ends_in_a_document_that_names_the_page(place) -> None:
    run_id, branch = place.send()
    place.server.add_run(branch, status="completed", conclusion="success")
    for step in (place.host.claim, place.host.start, place.host.finish):
        step(run_id)
    document = place.run("wait", run_id, "--json").document
    assert document["actions"]["conclusion"] == "success"


def test_a_waiting_workflow_run_is_cancelled_at_once(place) -> None:
    run_id, branch = place.send()
    place.server.add_run(branch)
    ran = place.run("cancel", run_id)
    assert ran.code == 0
    assert place.server.state.runs[0]["conclusion"] == "cancelled"
    assert run_id in place.asking.bus.snapshot().cancels


def test_a_working_host_gets_the_time_to_publish_and_the_second_cancel_ends_the_job(place) -> None:
    run_id, branch = place.send()
    place.server.add_run(branch, status="in_progress")
    place.host.claim(run_id)
    first = place.run("cancel", run_id)
    assert place.server.state.runs[0]["status"] == "in_progress"
    assert "the host ends it with a result" in first.err
    place.run("cancel", run_id)
    assert place.server.state.runs[0]["conclusion"] == "cancelled"


@pytest.mark.parametrize("status", FAULTS)
def test_no_answer_of_the_site_changes_what_a_command_comes_to(place, status: int) -> None:
    run_id, branch = place.send()
    place.server.add_run(branch)
    place.server.state.faults[" /repos"] = Fault(status, headers={"Retry-After": "3600"} if status == 429 else {})
    for words in (("status", run_id), ("cancel", run_id), ("run", "mlx-env-probe", "--new")):
        ran = place.run(*words)
        assert ran.code == 0, ran.err
        assert ran.err.count("git alone goes on without it") == 1
    assert run_id in place.asking.bus.snapshot().cancels


def test_without_a_token_one_line_says_what_is_missing(place) -> None:
    del place.asking.environment["GH_TOKEN"]
    place.asking.environment["PATH"] = ""
    ran = place.run("run", "mlx-env-probe", "--wait", "--wait-timeout", "100")
    assert ran.code == 8
    assert ran.err.count("no token for") == 1
    assert place.server.state.requests == []


@pytest.mark.parametrize("module", ["bridge.cli.mac.run", "bridge.cli.mac.watch.look", "bridge.runner.service.serve"])
def test_nothing_imports_the_library_before_a_question_is_asked(module: str) -> None:
    code = f"import sys, {module}, bridge.hosting.github; sys.exit(bool({{'github', 'requests'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0


def test_without_the_library_one_line_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['github'] = None\n"
        "from bridge.hosting.door import open_door\n"
        "door = open_door('https://github.com/o/r', {'GH_TOKEN': 'x'}, print)\n"
        "print(door.ask(lambda site: site.runs('b')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert install_remedy("github") in done.stdout
    assert done.stdout.splitlines()[-1] == "None"


def test_a_bus_that_polls_asks_nobody(tmp_path, server) -> None:
    place = Place(tmp_path, server, record={})
    place.host.beat()
    run_id, _ = place.send()
    place.run("status", run_id)
    place.run("cancel", run_id)
    assert server.state.requests == []


def test_doctor_names_the_cost_of_each_missing_permission(place) -> None:
    place.server.state.faults["/actions/runners"] = Fault(403, message="Resource not accessible")
    place.server.state.faults["/cancel"] = Fault(403, message="Resource not accessible")
    ran = place.run("doctor", "--no-push")
    assert "ok          github runs: permitted" in ran.out
    assert "warn        github runners: not permitted: whether a registered runner is online is not shown" in ran.out
    assert "remedy: give the token `Administration: read`, or do without" in ran.out
    assert "warn        github cancel: not permitted" in ran.out


def test_doctor_fails_for_a_public_repository_with_a_registered_runner(place) -> None:
    place.server.state.private = False
    assert "exposure" not in place.run("doctor", "--no-push").out
    place.server.add_runner("mac", online=True, busy=False, labels=())
    ran = place.run("doctor", "--no-push")
    assert ran.code == 1
    assert "fail        exposure: kakeya-tests/bus is public and has a registered runner (mac)" in ran.out


class TestWorkflowWarning:
    """A request that brings a workflow file the host refuses would stop the host's Actions service."""

    PATH = ".github/workflows/mac-bridge.yml"
    TEXT = b"name: mac-bridge\n"

    @pytest.fixture
    def clone(self, tmp_path, server):
        place = Place(tmp_path, server, record={"wake": "actions", "request_form": "workload"})
        file = tmp_path / self.PATH
        file.parent.mkdir(parents=True)
        file.write_bytes(self.TEXT)
        (tmp_path / ".gitignore").write_text("data\nconfig\n")
        for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
            subprocess.run(["git", *words], cwd=tmp_path, check=True, timeout=240)
        return place

    def accept(self, place: Place, text: bytes, refs: tuple[str, ...] = ("refs/heads/mac-bridge/*",)) -> None:
        digest = hashlib.sha256(text).hexdigest()
        place.host.beat(workflows=({"path": self.PATH, "sha256": digest, "refs": refs},))

    def test_the_accepted_file_is_sent_without_a_word(self, clone) -> None:
        self.accept(clone, self.TEXT)
        assert "warn" not in clone.run("run", "mlx-env-probe").err

    def test_an_edited_file_and_a_foreign_branch_are_warned_about_before_the_push(self, clone) -> None:
        self.accept(clone, self.TEXT + b"# edited\n")
        assert "stop its Actions service" in clone.run("run", "mlx-env-probe").err
        self.accept(clone, self.TEXT, refs=("refs/heads/main",))
        assert "stop its Actions service" in clone.run("run", "mlx-env-probe", "--new").err

    def test_uncommitted_changes_of_the_file_are_seen_when_they_are_sent(self, clone, tmp_path) -> None:
        self.accept(clone, self.TEXT)
        (tmp_path / self.PATH).write_bytes(self.TEXT + b"# edited\n")
        assert "stop its Actions service" not in clone.run("run", "mlx-env-probe").err
        assert "stop its Actions service" in clone.run("run", "mlx-env-probe", "--dirty", "--new").err

    def test_a_tree_without_the_file_wakes_nobody_and_an_unknown_host_is_said(self, clone, tmp_path) -> None:
        assert "has said which workflow files" in clone.run("run", "mlx-env-probe").err
        self.accept(clone, self.TEXT)
        subprocess.run(["git", "rm", "-q", self.PATH], cwd=tmp_path, check=True, timeout=240)
        subprocess.run(["git", "commit", "-q", "-m", "x"], cwd=tmp_path, check=True, timeout=240)
        assert "no workflow of it will wake the host" in clone.run("run", "mlx-env-probe", "--new").err
