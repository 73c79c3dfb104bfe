"""Runs by names in a network of the test alone: what ordinary programs reach, and that there is no other way out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.names_site import OURS, PUBLIC, can_be_made, run_script

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not can_be_made(), reason="a network of the test's own needs root and virtual cables"),
]
SCRIPT = Path(__file__).with_name("names_in_a_site.py")
CLOSED = "403 Forbidden kakeya: the name leads to an address that is not public"


@pytest.fixture(scope="module", autouse=True)
def _sandbox(need_sandbox):
    need_sandbox("other_user")


def outcome_of(what):
    done = run_script(SCRIPT, what)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pip_and_git_work_through_the_names_proxy_and_the_record_says_where_they_were():
    run = outcome_of("clients")

    assert (run["log"], run["exit"], run["ok"]) == ("True hello\n", 0, True)
    (reached,) = run["sandbox"]["use"]["reached"]
    assert (reached["host"], reached["port"]) == ("data.example.org", 443)
    assert reached["sent_bytes"] > 0
    assert reached["received_bytes"] > 0
    assert "net" in run["sandbox"]["namespaces"]


def test_no_way_leads_past_the_proxy_and_none_through_it_to_this_machine_or_its_network():
    runs = outcome_of("ways")
    answers = {network: json.loads(run["log"]) for network, run in runs.items()}

    for answer in answers.values():
        direct = [*answer["direct"].values(), answer["loopback"], answer["abstract"], answer["lookup"]]
        assert all(outcome.startswith("refused: ") for outcome in direct), direct
        assert answer["devices"] == ["lo"]
    for network in ("names", "internet"):
        proxy = answers[network]["proxy"]
        assert proxy["data.example.org:443"] == "HTTP/1.1 200 Connection established "
        for name in ("loop", "metadata", "ours"):
            assert proxy[f"{name}.example.org:443"] == f"HTTP/1.1 {CLOSED}"
        assert proxy["inner.example.org:80"] == f"HTTP/1.1 {CLOSED}"
        assert "is an address" in proxy[f"{PUBLIC}:443"]
        assert "HTTP/1.1 200" not in answers[network]["plain"]
        reasons = {refused["target"]: refused["reason"] for refused in runs[network]["sandbox"]["use"]["refused"]}
        assert reasons["ours.example.org:443"] == "the name leads to an address that is not public", OURS
    assert answers["names"]["proxy"]["mirror.example.org:443"].startswith("HTTP/1.1 403 ")
    assert answers["internet"]["proxy"]["mirror.example.org:443"].startswith("HTTP/1.1 200 ")
    assert set(answers["none"]["proxy"].values()) == {"refused: ConnectionRefusedError"}
