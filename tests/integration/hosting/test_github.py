"""The GitHub adapter against a stateful server whose every answer follows GitHub's own description."""

from __future__ import annotations

import pytest

from bridge.errors import HostingError
from bridge.hosting.door import Door, open_door
from bridge.hosting.github import DESCRIPTION_MAX_CHARS, REMEDIES, GitHubHosting
from bridge.hosting.place import API_URL, place_of
from bridge.hosting.token import Token, find_token
from tests.fakes.github_server import OWNER, REPOSITORY, Fault, GitHubServer, serving

SECRET = "ghp_" + "s" * 36
BRANCH = "mac-bridge/mlx-env-probe-01hf7yat0060rk4csm6mv3ee1s"


@pytest.fixture
def server():
    with serving() as running:
        yield running


def adapter(server: GitHubServer, retries: int = 0) -> GitHubHosting:
    return GitHubHosting(f"{OWNER}/{REPOSITORY}", Token(SECRET, "test"), api_url=server.url, pause_s=0, retries=retries)


def test_a_public_repository_is_told_from_a_private_one(server) -> None:
    server.state.private = False
    facts = adapter(server).repository()
    assert (facts.private, facts.may_push, facts.default_branch) == (False, True, "main")


def test_the_run_of_a_branch_has_a_page_and_a_place_in_the_queue(server) -> None:
    server.add_run("mac-bridge/other", minute=1)
    server.add_run(BRANCH, minute=2)
    hosting = adapter(server)
    (run,) = hosting.runs(BRANCH)
    assert run.url.startswith("http")
    assert hosting.queue_position(run) == 1


def test_a_finished_run_has_no_place_in_the_queue(server) -> None:
    server.add_run(BRANCH, status="completed", conclusion="success")
    hosting = adapter(server)
    assert hosting.queue_position(hosting.runs(BRANCH)[0]) is None


def test_lists_longer_than_a_page_are_read_whole(server) -> None:
    for index in range(37):
        server.add_runner(f"mac-{index}", online=index % 2 == 0, busy=False, labels=("kakeya-mac",))
    runners = adapter(server).runners()
    assert [r.name for r in runners] == [f"mac-{i}" for i in range(37)]
    assert sum(r.online for r in runners) == 19


def test_a_run_is_cancelled_once_and_a_finished_one_says_so(server) -> None:
    server.add_run(BRANCH, status="in_progress")
    hosting = adapter(server)
    run = hosting.runs(BRANCH)[0]
    hosting.cancel(run)
    assert hosting.runs(BRANCH)[0].conclusion == "cancelled"
    with pytest.raises(HostingError) as caught:
        hosting.cancel(run)
    assert caught.value.status == 409


def test_a_status_text_is_cut_at_the_sites_bound(server) -> None:
    adapter(server).set_status("a" * 40, "success", "kakeya/mlx-env-probe", "v" * 300, "https://example.org/run")
    (status,) = server.state.statuses
    assert len(status["description"]) == DESCRIPTION_MAX_CHARS


def test_a_status_that_is_there_is_not_set_again_and_one_that_changed_is(server) -> None:
    status_args = ("a" * 40, "success", "kakeya/mlx-env-probe", "v" * 300, "")
    adapter(server).set_status(*status_args)
    adapter(server).set_status(*status_args)
    assert len(server.state.statuses) == 1
    adapter(server).set_status("a" * 40, "failure", *status_args[2:])
    adapter(server).set_status("a" * 40, "failure", "kakeya/other", *status_args[3:])
    adapter(server).set_status(*status_args)
    assert [status["state"] for status in server.state.statuses] == ["success", "failure", "failure", "success"]


def test_a_repeated_comment_replaces_its_own_and_no_other(server) -> None:
    hosting = adapter(server)
    server.state.comments[7].append(_foreign(server))
    hosting.comment(7, "kakeya:1", "first")
    hosting.comment(7, "kakeya:1", "second")
    bodies = [comment["body"] for comment in server.state.comments[7]]
    assert bodies == ["hello", "<!-- kakeya:1 -->\nsecond"]


@pytest.mark.parametrize("login", ["owner", None])
def test_a_comment_with_the_marker_by_somebody_else_is_left_alone(server, login: str | None) -> None:
    server.state.login = login
    forged = "<!-- kakeya:1 -->\nverdict: evidence"
    server.state.comments[7].append({**_foreign(server), "body": forged})
    hosting = adapter(server)
    hosting.comment(7, "kakeya:1", "first")
    adapter(server).comment(7, "kakeya:1", "second")  # another process, which has to ask who it is
    bodies = [comment["body"] for comment in server.state.comments[7]]
    assert bodies == [forged, "<!-- kakeya:1 -->\nsecond"]


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 429, 500, 502, 503])
def test_every_refusal_is_one_clear_error_without_the_token(server, status: int) -> None:
    server.state.faults["/actions/runs"] = Fault(status)
    with pytest.raises(HostingError) as caught:
        adapter(server).runs(BRANCH)
    assert caught.value.status == status
    assert str(status) in caught.value.message
    assert caught.value.remedy
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


def test_a_dropped_connection_is_one_clear_error(server) -> None:
    server.state.faults["/actions/runs"] = Fault(0)
    with pytest.raises(HostingError, match="no answer"):
        adapter(server).runs(BRANCH)


@pytest.mark.parametrize("question", ["runs", "runners", "repository", "open_pulls"])
def test_an_answer_that_is_not_githubs_is_one_clear_error(server, question: str) -> None:
    server.state.faults[" /repos"] = Fault(200, message="a proxy's own page")
    arguments = {"runs": (BRANCH,), "open_pulls": (BRANCH, frozenset())}.get(question, ())
    with pytest.raises(HostingError, match="is not GitHub's"):
        getattr(adapter(server), question)(*arguments)


def test_a_passing_fault_is_tried_again(server) -> None:
    server.add_run(BRANCH)
    server.state.faults["/actions/runs"] = Fault(502, times=2)
    assert len(adapter(server, retries=3).runs(BRANCH)) == 1
    assert len([path for _, path in server.state.requests if "/actions/runs" in path]) == 3


def test_a_token_is_found_in_order_and_never_shown(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(0o600)
    everywhere = {"GH_TOKEN": "a", "GITHUB_TOKEN": "b", "KAKEYA_GITHUB_TOKEN_FILE": str(path)}
    token = find_token(everywhere, ask=lambda: "c")
    assert token is not None
    assert (token.text, token.source) == ("a", "GH_TOKEN")
    from_file = find_token({"KAKEYA_GITHUB_TOKEN_FILE": str(path)}, ask=lambda: "c")
    assert from_file is not None
    assert from_file.text == SECRET
    assert SECRET not in repr(from_file)
    token_of_gh = find_token({}, ask=lambda: "c")
    assert token_of_gh is not None
    assert token_of_gh.source == "gh auth token"
    assert find_token({}, ask=lambda: None) is None


def test_a_token_file_that_others_can_read_is_refused(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(0o644)
    with pytest.raises(HostingError, match="readable by others") as caught:
        find_token({"KAKEYA_GITHUB_TOKEN_FILE": str(path)})
    assert SECRET not in str(caught.value)


def test_a_run_that_has_not_changed_is_asked_for_by_its_tag(server) -> None:
    run_id = server.add_run(BRANCH)
    hosting = adapter(server)
    (run,) = hosting.runs(BRANCH)
    first = hosting.refresh(run)
    second = hosting.refresh(run)
    assert (first.status, second.status, server.state.not_modified) == ("queued", "queued", 1)
    next(entry for entry in server.state.runs if entry["id"] == run_id).update(status="in_progress")
    assert hosting.refresh(run).status == "in_progress"
    assert server.state.not_modified == 1


def test_pull_requests_are_found_by_branch_or_commit_over_all_pages(server) -> None:
    for number in range(1, 41):
        server.add_pull(number, f"topic-{number}", f"{number:040x}")
    pulls = adapter(server).open_pulls("topic-3", frozenset({f"{39:040x}"}))
    assert [(pull.number, pull.branch) for pull in pulls] == [(3, "topic-3"), (39, "topic-39")]


@pytest.mark.parametrize("feature", ["runs", "runners", "cancel", "status", "pulls", "comment"])
def test_each_feature_is_tried_without_changing_anything(server, feature: str) -> None:
    server.add_run(BRANCH)
    hosting = adapter(server)
    assert hosting.may(feature) is True
    state = server.state
    assert (state.statuses, dict(state.comments), state.runs[0]["status"]) == ([], {}, "queued")
    place = {"runs": "GET", "runners": "GET", "pulls": "GET"}.get(feature, "POST")
    state.faults[place] = Fault(403, message="Resource not accessible by personal access token")
    assert hosting.may(feature) is False


@pytest.mark.parametrize(
    "fault",
    [
        Fault(403, headers={"Retry-After": "3600"}, message="You have exceeded a secondary rate limit."),
        Fault(429, headers={"Retry-After": "3600"}),
        Fault(403, headers={"X-RateLimit-Reset": "99999999999"}, message="API rate limit exceeded for user"),
    ],
    ids=["secondary", "too many requests", "primary"],
)
def test_a_limit_that_lasts_longer_than_the_bound_is_not_waited_for(server, fault: Fault) -> None:
    server.state.faults["/actions/runs"] = fault
    with pytest.raises(HostingError) as caught:
        adapter(server, retries=3).runs(BRANCH)
    assert caught.value.is_limit
    assert caught.value.remedy == REMEDIES[429]
    assert len(server.state.requests) == 1


def test_a_short_limit_is_waited_for(server) -> None:
    server.add_run(BRANCH)
    server.state.faults["/actions/runs"] = Fault(429, times=1, headers={"Retry-After": "1"})
    assert len(adapter(server, retries=3).runs(BRANCH)) == 1


@pytest.mark.parametrize(
    ("route", "environ", "expected"),
    [
        ("https://github.com/o/r.git", {}, ("o/r", API_URL)),
        ("git@github.com:o/r.git", {}, ("o/r", API_URL)),
        ("ssh://git@github.com/o/r", {}, ("o/r", API_URL)),
        ("https://github.com.evil.example/o/r", {}, None),
        ("https://evil.example/github.com/o/r", {}, None),
        ("https://github.com/o/r/../../x/y", {}, None),
        ("/srv/github.com/o/r", {}, None),
        (None, {}, None),
        ("file:///srv/bus.git", {"KAKEYA_GITHUB_REPOSITORY": "o/r"}, ("o/r", API_URL)),
        ("file:///srv/bus.git", {"KAKEYA_GITHUB_REPOSITORY": "o/r?x"}, None),
        (
            "https://git.example.org/o/r.git",
            {"GITHUB_SERVER_URL": "https://git.example.org", "GITHUB_API_URL": "https://git.example.org/api/v3"},
            ("o/r", "https://git.example.org/api/v3"),
        ),
        (
            "file:///srv/bus.git",
            {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "o/r", "GITHUB_API_URL": "https://x"},
            ("o/r", "https://x"),
        ),
        ("file:///srv/bus.git", {"GITHUB_REPOSITORY": "o/r", "GITHUB_API_URL": "https://x"}, None),
    ],
)
def test_the_place_of_a_route(route, environ, expected) -> None:
    place = place_of(route, environ)
    assert (place and (place.repository, place.api_url)) == expected


class TestDoor:
    """What callers use: one line, once, and never an exception."""

    def test_without_a_site_nothing_is_said_and_without_a_token_one_line(self) -> None:
        lines: list[str] = []
        assert open_door("file:///srv/bus.git", {}, lines.append).ask(lambda _site: True) is None
        assert lines == []
        assert open_door("https://github.com/o/r", {"PATH": ""}, lines.append).ask(lambda _site: True) is None
        assert len(lines) == 1

    @pytest.mark.parametrize("status", [0, 401, 403, 404, 409, 422, 429, 500, 503])
    def test_a_failing_site_is_said_once(self, server, status: int) -> None:
        lines: list[str] = []
        server.state.faults["/actions/runs"] = Fault(status)
        door = Door(adapter(server), lines.append)
        assert [door.ask(lambda site: site.runs(BRANCH)) for _ in range(3)] == [None] * 3
        assert len(lines) == 1
        assert SECRET not in lines[0]
        assert (door.ask(lambda _site: True) is True) == (status not in {0, 401, 429})
        if status in {0, 401, 429}:
            assert len(server.state.requests) == 1

    def test_a_token_file_that_others_can_read_closes_the_door(self, tmp_path) -> None:
        lines: list[str] = []
        path = tmp_path / "token"
        path.write_text(SECRET)
        path.chmod(0o644)
        assert open_door("https://github.com/o/r", {}, lines.append, token_file=path).ask(lambda _site: True) is None
        assert "readable by others" in lines[0]
        assert SECRET not in lines[0]


def _foreign(server: GitHubServer) -> dict:
    from tests.fakes import openapi

    return openapi.github().example("issue-comment", server.url, id=99, body="hello")
