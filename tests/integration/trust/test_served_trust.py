"""A requester's commands, a real runner process, a real bus, real ssh-keygen: from init to revoke."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.tree import Tree
from bridge.bus.views import RequestRef
from bridge.cli.mac.program import Surroundings, main
from bridge.records.jobspec import JobSpec
from bridge.records.request import Workload
from bridge.records.run import RunRecord
from bridge.system.clock import SystemClock
from tests.fakes.asking import make_request
from tests.fakes.ssh_keys import Key, signed_request
from tests.support.runner_site import PRESET, site

pytestmark = pytest.mark.needs("ssh-keygen")

__all__ = ["site"]
CALM = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "dev",
    "GIT_AUTHOR_EMAIL": "dev@example.org",
    "GIT_COMMITTER_NAME": "dev",
    "GIT_COMMITTER_EMAIL": "dev@example.org",
}
WHO = "dev@example.org"


class Requester:
    """A clone of the bus's repository, and `kakeya-mac` in it."""

    def __init__(self, folder: Path, route: str) -> None:
        self.folder, self.top, self.route = folder, folder / "clone", route
        self.git("init", "-q", "-b", "main", str(self.top), at=folder)
        self.git("config", "user.email", WHO)
        (self.top / "code.py").write_text("print('one')\n")
        self.git("add", "code.py")
        self.git("commit", "-q", "-m", "one")
        self.root = self.git("rev-parse", "HEAD")

    def git(self, *words: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=at or self.top, env={**os.environ, **CALM}, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def run(self, *words: str) -> tuple[int, dict, str]:
        out, err = io.StringIO(), io.StringIO()
        environment = {
            "KAKEYA_DATA_DIR": str(self.folder / "data"),
            "KAKEYA_CONFIG_DIR": str(self.folder / "config"),
            "HOME": str(self.folder / "home"),
        }
        code = main([*words, "--json"], Surroundings(out, err, environment, self.top, SystemClock(), None))
        return code, json.loads(out.getvalue()), err.getvalue()


def allow(site, *lines: str) -> None:
    """Add top-level keys to the policy."""
    path = site.policy()
    path.write_text("\n".join(lines) + "\n" + path.read_text())
    path.chmod(0o600)


def result_of(site, run_id: str) -> Tree:
    return site.requester().read_result(site.ended(RequestRef(run_id, "", "")).result_oid)


def record_of(site, run_id: str) -> RunRecord:
    return RunRecord.parse(result_of(site, run_id).files["run.json"], max_bytes=1 << 25, max_depth=32)


@pytest.fixture
def place(site, tmp_path):
    made = site()
    made.create_bus()
    path = made.folder / "presets" / "theirs.toml"
    path.write_text(PRESET.replace('name = "count"\nstatus', 'name = "theirs"\ncode = "request"\nstatus'))
    path.chmod(0o600)
    return made, Requester(tmp_path, made.route)


def trust_it(site, document: dict) -> None:
    key, who = document["data"]["public_key"], document["data"]["principal"]
    assert site.run("trust", "add", key, "--principal", who).code == 0


def test_from_init_to_a_signed_run_with_the_owners_one_command(place):
    site, requester = place
    allow(site)
    code, document, stderr = requester.run("init", "--bus", site.route, "--signing-key", "auto")
    assert code == 0
    assert document["data"]["principal"] == WHO
    assert (requester.folder / "config" / "signing_key").stat().st_mode & 0o777 == 0o600
    assert f"kakeya-runner welcome '{WHO} ssh-ed25519" in stderr
    site.start("serve", "--bus", site.route)

    _, unlisted, _ = requester.run("run", "mlx-env-probe", "--wait", "--queue")
    assert unlisted["trust"]["principal"].startswith(f"unsigned (calls itself {WHO}, key SHA256:")
    assert unlisted["trust"]["signed"] is False

    trust_it(site, document)  # the running runner sees it at once
    _, ran, _ = requester.run("run", "mlx-env-probe", "--wait", "--queue", "--new")
    assert ran["trust"] == {
        "principal": WHO, "signer": document["data"]["signer"], "signed": True, "code": "host", "labels": [],
    }, ran["outcome"]  # fmt: skip
    code, again, _ = requester.run("retry", ran["id"], "--wait", "--queue")
    assert again["trust"]["signed"] is True
    assert again["request"]["retry_of"] == ran["id"]
    assert requester.run("verify", again["id"])[0] == 9  # its bus signs no results
    site.until(lambda: "signed-requests" in str(requester.run("runners")[1]), "no runner says that it checks")
    findings = {finding["check"]: finding for finding in requester.run("doctor")[1]["data"]}
    assert findings["signing"]["level"] == "ok", findings
    assert "checked by mini" in findings["signing"]["text"]


def set_up(site, requester) -> Key:
    """Make a key at the requester's and trust it at the host."""
    _, document, _ = requester.run("init", "--bus", site.route, "--signing-key", "auto")
    trust_it(site, document)
    return Key(requester.folder / "config" / "signing_key")


def send(site, requester, preset: str, key: Key | None, commit: str | None = None) -> RequestRef:
    """Push a request for one of the owner's own presets, signed or not, with the code of a commit."""
    bus = open_bus(site.route, repository=requester.top, state=site.folder / "sender", clock=SystemClock())
    code = None
    if commit is not None:
        tree = requester.git("rev-parse", f"{commit}^{{tree}}")
        code = Workload(commit=requester.git("rev-parse", commit), tree=tree, origin="", dirty=False)
    bus_id = bus.identity().bus_id
    if key is None:
        request, signature = make_request(bus_id, preset, workload=code), None
    else:
        request, signature = signed_request(bus_id, preset, key, WHO, workload=code)
    return bus.submit(request.canonical(), request.ref, code, signature).ref


@pytest.mark.ci
def test_request_code_needs_a_signature_and_somebody_who_vouches_for_it(place):
    site, requester = place
    allow(site, 'protected_refs = ["refs/heads/main"]', f'floor_commit = "{requester.root}"')
    (requester.top / "code.py").write_text("print('two')\n")
    requester.git("commit", "-q", "-am", "two")
    requester.git("push", "-q", site.route, "main")
    key = set_up(site, requester)
    site.start("serve", "--bus", site.route)

    unsigned = send(site, requester, "theirs", None, "HEAD")
    refused = site.ended(unsigned)
    assert (refused.reason, record_of(site, unsigned.id).commands) == ("policy_refused", ())
    assert "the request is unsigned" in refused.message
    assert "kakeya-runner welcome LINE --may PRESET" in refused.message

    signed = send(site, requester, "theirs", key, "HEAD")
    site.ended(signed)
    assert b"working" in result_of(site, signed.id).files["log.txt"]
    record = record_of(site, signed.id)
    assert (record.principal, record.code.trust_class, record.code.origin) == (WHO, "trusted", "request")
    spec = JobSpec.parse(result_of(site, signed.id).files["spec.json"], max_bytes=1 << 20)
    decisions = "\n".join(spec.decisions)
    assert f"asked by {WHO}, signed by {key.fingerprint}" in decisions
    assert "is on refs/heads/main after" in decisions

    (requester.top / "code.py").write_text("print('three')\n")
    requester.git("commit", "-q", "-am", "three, not on main")
    sent = send(site, requester, "theirs", key, "HEAD")
    untrusted = site.ended(sent)
    assert (untrusted.reason, record_of(site, sent.id).commands) == ("policy_refused", ())
    assert "kakeya-runner trust add KEY --code" in untrusted.message


def running_for_long(place):
    """Start a request that would sleep for longer than any test waits."""
    site, requester = place
    site.set_work("sleep 120")
    allow(site)
    key = set_up(site, requester)
    site.start("serve", "--bus", site.route)
    sent = send(site, requester, "count", key)
    site.until(site.starts, "never started")
    return site, requester, key, sent


@pytest.mark.ci
def test_a_revoked_principal_loses_what_is_running_and_what_it_asks_next(place):
    site, requester, key, sent = running_for_long(place)
    assert site.run("revoke", WHO).code == 0
    claim = site.ended(sent)
    assert claim.reason == "policy_refused"
    assert "stopped while it ran: the owner has revoked dev@example.org or its key" in claim.message
    record = record_of(site, sent.id)
    assert (record.principal, record.reason) == (WHO, "policy_refused")
    assert [command.survivors for command in record.commands] == [0]
    assert record.wall_s < 100, "it slept to its end"
    refused = site.ended(send(site, requester, "count", key))
    assert (refused.reason, "has revoked" in refused.message) == ("policy_refused", True)
    assert site.starts() == [sent.id]


@pytest.mark.ci
def test_taking_a_key_off_the_list_ends_what_runs_with_it(place):
    site, _, key, sent = running_for_long(place)
    assert site.run("trust", "remove", key.fingerprint).code == 0
    claim = site.ended(sent)
    assert (claim.reason, f"took the key {key.fingerprint} of {WHO} off" in claim.message) == ("policy_refused", True)


@pytest.mark.ci
def test_a_cancel_from_the_same_clone_ends_a_signed_run(place):
    site, requester, _, sent = running_for_long(place)
    site.requester().ask_cancel(sent.id, b"{}")  # anybody with push rights
    code, _, stderr = requester.run("cancel", sent.id)
    assert code == 0, stderr
    assert site.ended(sent).reason == "cancelled"


@pytest.mark.ci
def test_a_killed_runner_goes_on_with_what_it_let_in_and_nothing_else(place):
    site, requester = place
    allow(site)
    key = set_up(site, requester)
    sent = send(site, requester, "count", key)
    site.run("once", "--bus", site.route)
    assert site.starts() == [sent.id]
    bus = site.folder / "bus.git"
    ours = requester.git("for-each-ref", "--format=%(refname) %(objectname)", at=bus).splitlines()
    request_oid = site.claim(sent).request_oid
    for ref, oid in (line.split() for line in ours):
        if sent.id in ref:
            requester.git("update-ref", "-d", ref, oid, at=bus)
    requester.git("update-ref", sent.ref, request_oid, at=bus)  # the very same commit, as it was pushed first
    site.run("once", "--bus", site.route)
    claim = site.ended(sent)
    assert claim.reason == "request_rejected"
    assert "a request runs once" in claim.message
    assert site.starts() == [sent.id]
