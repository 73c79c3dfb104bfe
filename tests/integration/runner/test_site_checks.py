"""`kakeya-runner doctor`: what a missing permission costs, and a public repository with a registered runner fails."""

from __future__ import annotations

import json

import pytest

from tests.fakes.github_server import OWNER, REPOSITORY, Fault, serving

pytestmark = pytest.mark.ci

SECRET = "ghp_" + "s" * 36
LISTED = 'repository = "o/r"\npath = ".github/workflows/x.yml"\nrefs = ["*"]\n'
WORKFLOW = f'[[actions.workflows]]\n{LISTED}sha256 = "{"a" * 64}"\n'


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def host(site, server, monkeypatch):
    s = site()
    s.create_bus()
    s.policy()
    monkeypatch.setenv("KAKEYA_GITHUB_REPOSITORY", f"{OWNER}/{REPOSITORY}")
    monkeypatch.setenv("KAKEYA_GITHUB_API", server.url)
    monkeypatch.setenv("GH_TOKEN", SECRET)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return s


def examined(s, more: str = "") -> dict[str, tuple[str, str]]:
    """Return level and text of each finding by its name."""
    policy = s.folder / "mini.toml"
    policy.write_text(policy.read_text() + more)
    ran = s.run("doctor", "--json", "--bus", s.route)
    assert SECRET not in ran.stdout + ran.stderr
    return {finding["name"]: (finding["level"], finding["text"]) for finding in json.loads(ran.stdout)}


def test_each_missing_permission_is_named_with_what_it_costs(host, server) -> None:
    server.state.faults["POST /repos/kakeya-tests/bus/statuses"] = Fault(403, message="Resource not accessible")
    findings = examined(host, "[hosting]\nstatus = true\ncomment = true\n")
    assert "no commit status carries the verdict" in findings["github status"][1]
    assert findings["github comment"][0] == "ok"
    assert "runners" not in " ".join(findings)


def test_a_public_repository_with_a_registered_runner_fails(host, server) -> None:
    server.state.private = False
    server.add_runner("mac", online=True, busy=False, labels=())
    findings = examined(host)
    assert findings["exposure"][0] == "fail"
    assert host.run("doctor", "--bus", host.route).code == 1


def test_a_host_with_an_actions_policy_fails_in_public_whatever_the_token_may_see(host, server) -> None:
    server.state.private = False
    server.state.faults["/actions/runners"] = Fault(403, message="Resource not accessible")
    findings = examined(host, WORKFLOW)
    assert findings["exposure"][0] == "fail"
    assert "this machine" in findings["exposure"][1]


def test_a_private_repository_and_a_host_that_asks_nothing_are_fine(host, server, monkeypatch) -> None:
    server.add_runner("mac", online=True, busy=False, labels=())
    assert "exposure" not in examined(host)
    monkeypatch.delenv("GH_TOKEN")
    count = len(server.state.requests)
    assert not any(name.startswith("github") for name in examined(host))
    assert len(server.state.requests) == count


def test_a_token_file_that_others_can_read_is_a_finding(host, tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    token.chmod(0o640)
    findings = examined(host, f'[hosting]\nstatus = true\ntoken_file = "{token}"\n')
    assert findings["github"][0] == "fail"
    assert "readable by others" in findings["github"][1]
