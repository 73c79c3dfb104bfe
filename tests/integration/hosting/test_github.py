"""The GitHub adapter against a stateful server whose every answer follows GitHub's own description."""

from __future__ import annotations

import pytest

from bridge.errors import HostingError
from bridge.hosting.github import DESCRIPTION_MAX_CHARS, GitHubHosting
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


def test_a_dispatch_carries_the_branch_as_data(server) -> None:
    adapter(server).dispatch("mac-bridge.yml", "main", {"request_branch": "x;$(id)"})
    assert server.state.dispatches == [{"ref": "main", "inputs": {"request_branch": "x;$(id)"}}]


def test_a_status_text_is_cut_at_the_sites_bound(server) -> None:
    adapter(server).set_status("a" * 40, "success", "kakeya/mlx-env-probe", "v" * 300, "https://example.org/run")
    (status,) = server.state.statuses
    assert len(status["description"]) == DESCRIPTION_MAX_CHARS


def test_a_repeated_comment_replaces_its_own_and_no_other(server) -> None:
    hosting = adapter(server)
    server.state.comments[7].append(_foreign(server))
    hosting.comment(7, "kakeya:1", "first")
    hosting.comment(7, "kakeya:1", "second")
    bodies = [comment["body"] for comment in server.state.comments[7]]
    assert bodies == ["hello", "<!-- kakeya:1 -->\nsecond"]


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
    found = find_token(everywhere, ask=lambda: "c")
    assert found is not None
    assert (found.text, found.source) == ("a", "GH_TOKEN")
    from_file = find_token({"KAKEYA_GITHUB_TOKEN_FILE": str(path)}, ask=lambda: "c")
    assert from_file is not None
    assert from_file.text == SECRET
    assert SECRET not in repr(from_file)
    asked = find_token({}, ask=lambda: "c")
    assert asked is not None
    assert asked.source == "gh auth token"
    assert find_token({}, ask=lambda: None) is None


def test_a_token_file_that_others_can_read_is_refused(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(0o644)
    with pytest.raises(HostingError, match="readable by others") as caught:
        find_token({"KAKEYA_GITHUB_TOKEN_FILE": str(path)})
    assert SECRET not in str(caught.value)


def _foreign(server: GitHubServer) -> dict:
    from tests.fakes import openapi

    return openapi.github().example("issue-comment", server.url, id=99, body="hello")
