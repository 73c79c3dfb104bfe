"""`--via ssh://` against a real sshd whose only key may only run `kakeya-runner exec`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.served import asked_for
from bridge.bus.refbus import RefBus
from bridge.cli.mac.program import Surroundings, main
from bridge.errors import UsageError
from bridge.limits import RESULT_MAX_BYTES
from bridge.records.verdict import Verdict
from bridge.system.clock import SystemClock
from bridge.trust import keyring
from bridge.trust.attestation import ATTESTATION_FILE
from tests.fakes import git_servers
from tests.fakes.asking import make_request, push
from tests.fakes.git_servers import SshServer, git
from tests.support import guarded
from tests.support.runner_site import Site

ROOT = Path(__file__).parents[3]
CLOCK = SystemClock()


class Reached:
    """A host that is reached over ssh and a requester's clone that reaches it."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.site = Site(folder)
        self.folder = folder
        self.state = folder / "state-mini"
        self.server_folder = folder / "sshd"
        self.server_folder.mkdir()
        policy = self.site.policy()
        program = f"{sys.executable} -m bridge.cli.host.main"
        self.forced = f"env PYTHONPATH={ROOT} {program} exec --state {self.state} --policy {policy}"
        self.server = SshServer(self.server_folder, forced=self.forced)
        self.clone = folder / "clone"
        git("init", "--quiet", str(self.clone))
        self.connect_by(self.server.command)

    @property
    def ssh(self) -> str:
        """The ssh command without a shared connection: a lost one is lost."""
        return self.server.command.split(" -oControlMaster")[0]

    def connect_by(self, command: str) -> None:
        """Let the requester's git use this ssh command; a shared connection greets the server once."""
        git("config", "core.sshCommand", command, cwd=self.clone)

    @property
    def via(self) -> str:
        return f"ssh://root@127.0.0.1:{self.server.port}"

    def requester(self) -> RefBus:
        """Return the bus as a requester reaches it."""
        return open_bus(f"{self.via}/kakeya", repository=self.clone, state=self.folder / "requester", clock=CLOCK)

    def host(self) -> RefBus:
        """Return the bus as its host reads it: to look again and again costs no connections."""
        path = self.state / "ssh" / "bus.git"
        return open_bus(str(path), repository=None, state=self.folder / "host", clock=CLOCK)

    def restart_server(self) -> None:
        self.server = SshServer(self.server_folder, forced=self.forced, port=self.server.port)

    def told(self, *words: str) -> tuple[int, dict]:
        code, out, _ = self.said(*words, "--json")
        return code, json.loads(out)

    def said(self, *words: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        home = {"KAKEYA_DATA_DIR": str(self.folder / "data"), "KAKEYA_CONFIG_DIR": str(self.folder / "config")}
        code = main(list(words), Surroundings(out, err, home, self.clone, CLOCK, None))
        return code, out.getvalue(), err.getvalue()

    def raw(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.ssh.split(), "-p", str(self.server.port), "root@127.0.0.1", *command],
            capture_output=True, timeout=240, check=False,
        )  # fmt: skip

    def runner_pid(self) -> int | None:
        lock = self.state / "ssh" / "lock"
        text = lock.read_text().strip() if lock.exists() else ""
        try:
            words = Path(f"/proc/{text}/cmdline").read_bytes().split(b"\0") if text else []
        except OSError:
            return None
        return int(text) if b"--serve" in words else None  # a look at the bus holds the lock for an instant

    def close(self) -> None:
        self.server.close()
        pid = self.runner_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it may end of itself between the two questions
                os.kill(pid, signal.SIGTERM)
            while self.runner_pid() is not None:
                time.sleep(0.05)


@contextlib.contextmanager
def reached_in(folder: Path, missing) -> Iterator[Reached]:
    absent = git_servers.missing_programs()
    if absent:
        missing("servers", f"not installed: {', '.join(absent)}")
    host = Reached(folder)
    try:
        yield host
    finally:
        host.close()


@pytest.fixture(scope="module")
def reached(tmp_path_factory, missing) -> Iterator[Reached]:
    """One host for all: its runner starts by itself wherever a test finds none."""
    with reached_in(tmp_path_factory.mktemp("reached"), missing) as host:
        yield host


@pytest.fixture
def own(tmp_path_factory, missing) -> Iterator[Reached]:
    with reached_in(tmp_path_factory.mktemp("own"), missing) as host:
        yield host


pytestmark = [pytest.mark.servers, pytest.mark.ci]


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["stand-in", "real"])
def test_a_run_over_ssh_is_the_same_run_with_the_same_result(own, real) -> None:
    """Request, log, result tree, gate and signature as on any bus; `real` is the interpreter that runs the preset."""
    policy = own.folder / "mini.toml"
    if real:
        policy.write_text(policy.read_text().replace(str(own.site.interpreter), sys.executable))
    words = ("run", "mlx-env-probe", "--via", own.via, "--follow", "--wait-timeout", "200")
    code, document = own.told(*words)
    assert (document["state"], document["where"]["local"]) == ("published", False), document
    run_id = document["id"]
    assert document["outcome"]["reason"] in {"passed", "gate_rejected"}, document["outcome"]
    assert code == (0 if document["outcome"]["gate_passed"] else 1)
    tree = own.requester().read_result(own.requester().view(run_id).claim.claim.result_oid).files
    assert {"request.json", "run.json", "spec.json", "verdict.json", "claims.jsonl", ATTESTATION_FILE} <= set(tree)
    assert tree["log.txt"]
    assert b"".join(chunk.data for chunk in own.requester().read_log(run_id)) == tree["log.txt"]
    key = keyring.pin(keyring.decode((own.state / "ssh" / keyring.PUBLIC_FILE).read_bytes())[-1])
    elsewhere = ["kakeya-mac", "attach", run_id, "--bus", f"{own.via}/kakeya#{document['bus']['id']}"]
    assert own.told("attach", run_id)[1]["outcome"]["remedy"] == shlex.join(elsewhere)
    assert own.told("init", "--bus", f"{own.via}#{document['bus']['id']}", "--runner-key", key)[0] == 0
    verified = own.told("verify", run_id)
    assert (verified[0], verified[1]["data"]["signed"]) == (0, True), verified
    assert own.told("status", run_id)[1]["id"] == run_id
    verdict = Verdict.parse(tree["verdict.json"], max_bytes=RESULT_MAX_BYTES, max_depth=32)
    wordings = [claim.wording for claim in verdict.claims if claim.citable]
    code, document = own.told("quote", run_id)
    assert code == (0 if wordings else 1 if verdict.claims else 2)  # a stand-in's empty report claims nothing
    assert all(any(f": {words}; on " in line for line in document["data"]["lines"]) for words in wordings)


def test_nothing_but_git_on_this_one_bus_can_be_asked_for(reached) -> None:
    for command in ("id", "git-upload-archive /", "git-receive-pack /etc; id", "bash -c id", "git-upload-pack --help"):
        done = reached.raw(command)
        assert done.returncode == 2, command
        assert b"may only send Kakeya requests" in done.stderr
        assert b"uid=" not in done.stdout + done.stderr
    other = git_servers.bare(reached.folder / "other.git")
    advertised = reached.raw(f"git-upload-pack '{other}'")
    assert b"refs/kakeya/bus" in advertised.stdout  # the host's own bus, whatever path is named


def test_a_requester_cannot_write_what_is_the_runner_s(reached) -> None:
    path = reached.state / "ssh" / "bus.git"
    bus = reached.requester()
    bus.identity()
    reached.site.until((reached.state / "ssh" / "runner.keys.json").exists, "never made a key")
    reached.site.until(lambda: reached.host().identity().attestation == "dsse", "never enrolled")
    ref = push(bus, make_request(bus.identity().bus_id, "count"))
    git("-c", f"core.sshCommand={reached.ssh}", "fetch", "--quiet", f"{reached.via}/kakeya", ref.ref, cwd=reached.clone)
    before = git("rev-parse", "refs/kakeya/bus", cwd=path)
    for name in ("kakeya/bus", f"kakeya/claim/{ref.id}", "heads/main", "replace/x", "heads/kakeya/bus", "tags/x"):
        done = subprocess.run(
            ["git", "push", "--force", f"{reached.via}/kakeya", f"FETCH_HEAD:refs/{name}"],
            cwd=reached.clone, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode != 0, name
        assert "hidden ref" in done.stderr, done.stderr
    assert git("rev-parse", "refs/kakeya/bus", cwd=path) == before
    assert "refs/heads/main" not in git("for-each-ref", cwd=path)


def test_a_lost_connection_costs_nothing(reached) -> None:
    reached.site.set_work(f"while [ ! -e {reached.site.folder}/counted/go ]; do sleep 0.1; done")
    reached.connect_by(reached.ssh)
    bus = reached.requester()
    request = make_request(bus.identity().bus_id, "count")
    ref = push(bus, request)
    reached.site.until(lambda: ref.id in reached.site.starts(), "never started")
    guarded.stop(reached.server.process)
    assert reached.said("attach", ref.id, "--bus", reached.via)[0] == 3
    (reached.site.folder / "counted" / "go").touch()
    reached.restart_server()
    assert bus.submit(request.canonical(), ref.ref, None).reattached  # the same bytes again find what is there
    code, document = reached.told("attach", ref.id, "--bus", reached.via, "--wait-timeout", "120")
    assert (document["id"], document["state"], code) == (ref.id, "published", 1), document
    assert reached.site.starts().count(ref.id) == 1
    reached.connect_by(reached.server.command)


def test_a_runner_that_died_is_started_again_by_whoever_looks(reached) -> None:
    reached.told("ls", "--bus", reached.via)
    reached.site.until(lambda: reached.runner_pid() is not None, "never started")
    first = reached.runner_pid()
    os.kill(first, signal.SIGKILL)
    reached.site.until(lambda: reached.runner_pid() is None, "never died")
    reached.told("ls", "--bus", reached.via)
    reached.site.until(lambda: reached.runner_pid() is not None, "never started again")


@pytest.mark.parametrize(
    "command", ["", "git-upload-pack", "git-upload-pack 'a", "git-upload-pack a b", "x" * 2000, "git-upload-pack -x"]
)
def test_a_command_that_is_not_git_s_is_refused(command) -> None:
    with pytest.raises(UsageError, match="may only send"):
        asked_for(command)


def test_the_owner_s_pause_holds_this_runner_too(reached) -> None:
    assert reached.site.run("pause").code == 0
    bus = reached.requester()
    ref = push(bus, make_request(bus.identity().bus_id, "count"))
    log = reached.state / "ssh" / "runner.log"
    reached.site.until(lambda: log.exists() and "paused" in log.read_text(), "never said that it is paused")
    assert bus.view(ref.id).claim is None
    assert reached.site.run("resume").code == 0
    reached.site.until(lambda: reached.host().view(ref.id).delivery == "copied", "never went on")


def test_what_the_owner_is_shown_is_the_line_the_id_and_the_key(reached) -> None:
    shown = reached.site.run("exec", "--show")
    assert shown.code == 0
    assert shown.stdout.startswith('restrict,command="')
    assert "exec --state" in shown.stdout
    assert reached.requester().identity().bus_id in shown.stderr
    assert reached.requester().identity().keys[-1].public in shown.stderr
