"""What GitHub is told of a result, by the real command over a real remote; and that nothing depends on it."""

from __future__ import annotations

import pytest

from tests.fakes.github_server import Fault, serving

SECRET = "ghp_" + "s" * 36
LOUD = "[hosting]\nstatus = true\ncomment = true\n"
LINE = "log line @somebody ![x](http://example.org/x.png) ::set-output name=x::y"


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def loud(site, server, monkeypatch):
    """Return a site whose policy tells GitHub, and whose outputs are searched for the token."""
    s = site(work=f"echo '{LINE}'")
    s.create_bus()
    policy = s.policy()
    policy.write_text(policy.read_text() + LOUD)
    for name, value in {**server.environ, "GH_TOKEN": SECRET}.items():
        monkeypatch.setenv(name, value)
    return s


def once(s) -> object:
    ran = s.run("once", "--bus", s.route)
    assert SECRET not in ran.stdout + ran.stderr
    return ran


def test_status_and_comment_name_the_request_and_carry_the_verdict(loud, server, monkeypatch) -> None:
    ref = loud.ask()
    server.add_pull(7, ref.ref.removeprefix("refs/heads/"), "0" * 39 + "1")
    server.add_pull(8, "other", "0" * 39 + "2")
    for name, value in {
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://example.org",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_RUN_ID": "42",
    }.items():
        monkeypatch.setenv(name, value)
    once(loud)
    (status,) = server.state.statuses
    assert (status["sha"], status["context"]) == (ref.oid, "kakeya/count")
    assert status["state"] == "failure"  # the report is empty: the gate refuses it
    assert status["target_url"] == "https://example.org/o/r/actions/runs/42"
    (comment,) = server.state.comments[7]
    assert f"Request `{ref.id}`" in comment["body"]
    assert "gate\\_rejected" in comment["body"]
    assert LINE not in comment["body"]
    assert 8 not in server.state.comments
    assert any(SECRET in header for header in server.state.authorizations)


@pytest.mark.ci
def test_a_run_that_is_told_of_again_rewrites_its_own_comment_only(loud, server) -> None:
    first, second = loud.ask(), loud.ask()
    for ref in (first, second):
        server.add_pull(3, ref.ref.removeprefix("refs/heads/"), ref.oid)
        once(loud)
    bodies = [comment["body"] for comment in server.state.comments[3]]
    assert [first.id in bodies[0], second.id in bodies[1], len(bodies)] == [True, True, 2]


@pytest.mark.ci
def test_the_job_summary_is_the_escaped_result_and_no_log(loud, tmp_path, monkeypatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ref = loud.ask()
    once(loud)
    text = summary.read_text()
    assert text.startswith("before\n**gate\\_rejected: ")
    assert f"Request `{ref.id}`" in text
    assert "@somebody" not in text
    assert "::set-output" not in text


@pytest.mark.ci
def test_a_summary_that_cannot_be_written_is_said_and_changes_nothing(loud, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "gone" / "summary.md"))
    ref = loud.ask()
    ran = once(loud)
    assert "no job summary" in ran.stderr
    assert loud.claim(ref).state == "terminal"


# One that closes the door and one that does not; which do is a table, tried whole against the client alone.
@pytest.mark.ci
@pytest.mark.parametrize(
    "status", [0, 422, *(pytest.param(code, marks=pytest.mark.slow) for code in (401, 403, 404, 409, 429, 500, 503))]
)
def test_a_site_that_refuses_changes_nothing_of_the_result(loud, server, status: int) -> None:
    ref = loud.ask()
    server.state.faults[" /repos"] = Fault(status, headers={"Retry-After": "3600"} if status == 429 else {})
    ran = once(loud)
    assert ran.code == 1  # the gate's own word
    assert loud.claim(ref).state == "terminal"
    count = ran.stderr.count("git alone goes on without it")
    assert count == (1 if status in {0, 401, 429} else 2)  # a closed door is not asked again


@pytest.mark.ci
def test_nothing_is_told_unless_the_owner_says_so(site, server, monkeypatch) -> None:
    s = site()
    s.create_bus()
    for name, value in {**server.environ, "GH_TOKEN": SECRET}.items():
        monkeypatch.setenv(name, value)
    s.ask()
    once(s)
    assert server.state.requests == []


@pytest.mark.ci
def test_without_a_token_one_line_is_said_and_the_owners_file_is_used_when_there(
    loud, server, tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv("GH_TOKEN")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    loud.ask()
    assert once(loud).stderr.count("no token for") == 1
    assert server.state.requests == []
    token = tmp_path / "token"
    token.write_text(SECRET)
    token.chmod(0o600)
    policy = loud.folder / "mini.toml"
    policy.write_text(f'{policy.read_text()}token_file = "{token}"\n')
    loud.ask()
    once(loud)
    assert len(server.state.statuses) == 1


@pytest.mark.ci
def test_a_host_that_actions_wakes_says_once_which_workflows_it_accepts(site) -> None:
    s = site()
    s.create_bus(wake="actions")
    policy = s.policy()
    listed = 'repository = "o/r"\npath = ".github/workflows/mac-bridge.yml"\nrefs = ["refs/heads/*"]\n'
    policy.write_text(f'{policy.read_text()}[[actions.workflows]]\n{listed}sha256 = "{"a" * 64}"\n')
    s.run("once", "--bus", s.route)
    ((tip, beacon),) = s.requester().read_beacons()
    assert [(workflow.path, workflow.sha256) for workflow in beacon.workflows] == [
        (".github/workflows/mac-bridge.yml", "a" * 64)
    ]
    s.run("once", "--bus", s.route)
    assert s.requester().read_beacons()[0][0] == tip
    policy.write_text(policy.read_text().replace("a" * 64, "b" * 64))
    s.run("once", "--bus", s.route)
    assert s.requester().read_beacons()[0][1].workflows[0].sha256 == "b" * 64
