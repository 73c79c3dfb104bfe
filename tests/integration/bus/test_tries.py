"""A git host that fails now and then: three tries everywhere, nothing lost, nothing twice, and what it asks is done."""

from __future__ import annotations

import random
import re
import shutil
from contextlib import suppress
from itertools import cycle

import pytest

from bridge.bus import open_bus
from bridge.bus.store.git import GitStore
from bridge.bus.store.interface import RefUpdate
from bridge.bus.store.route import Route
from bridge.bus.store.swap import swap, tips_of
from bridge.cli.host.main import main
from bridge.errors import BusMissingError, RemoteError, RemoteRefusedError
from bridge.system.clock import SystemClock
from bridge.system.gitobjects import commit, tree
from tests.fakes.git_host import SIGN_IN, GitHost, Reply, in_turn, is_upload
from tests.fakes.git_servers import bare

BROKEN = Reply(502, b"bad gateway\n")
LIMITED = Reply(429, b"rate limited\n")
REF = "refs/heads/mac-bridge/x"


def later(seconds: int) -> Reply:
    return Reply(429, b"You have exceeded a secondary rate limit\n", (("Retry-After", str(seconds)),))


@pytest.fixture
def host(tmp_path):
    made = GitHost(tmp_path)
    bare(tmp_path / "bus.git")
    yield made
    made.close()


def store_at(host, tmp_path, pauses_s=(0.01, 0.02)) -> GitStore:
    url = host.url(tmp_path / "bus.git")
    return GitStore(Route(url, url, (), is_local=True), tmp_path / "state", pauses_s=pauses_s)


def update(store: GitStore, number: int = 0, ref: str = REF) -> RefUpdate:
    top = tree(())
    made = commit(top.oid, (), 1_700_000_000 + number, "x")
    store.write([top, made])
    return RefUpdate(ref, made.oid, None)


@pytest.mark.parametrize("reply", [BROKEN, LIMITED, later(0), Reply(503), Reply(None)])
def test_a_listing_and_a_push_are_tried_three_times(host, tmp_path, reply):
    store = store_at(host, tmp_path)
    host.gates = [in_turn([reply, reply])]
    assert store.list(["refs/"]).refs == {}
    host.gates = [in_turn([reply, reply], is_upload)]
    sent = update(store)
    assert swap(store, [sent], authority=REF)[REF].landed
    assert tips_of(store, [REF]) == {REF: sent.new}


def test_what_fails_three_times_is_an_error_that_says_what_kind(host, tmp_path):
    store = store_at(host, tmp_path)
    host.gates = [in_turn([BROKEN] * 3)]
    with pytest.raises(RemoteError) as caught:
        store.list(["refs/"])
    assert (caught.value.cause, caught.value.is_passing) == ("an outage", True)
    assert len(host.calls) == 3


def test_a_push_whose_answer_was_lost_is_seen_as_landed_and_not_sent_again(host, tmp_path):
    store, host.lose_replies = store_at(host, tmp_path), 1
    assert swap(store, [update(store)], authority=REF)[REF].landed
    assert sum(bool(call.updates) for call in host.calls) in (1, 2)  # curl itself repeats an upload that got no answer


def test_a_server_that_asks_for_a_pause_gets_it_and_one_that_asks_for_a_long_one_ends_the_command(host, tmp_path):
    store = store_at(host, tmp_path)
    clock_s = store._tries.pauses_s  # far less than what the server asks for
    host.gates = [in_turn([later(1)])]
    assert sum(clock_s) < 1
    store.list(["refs/"])
    host.gates = [lambda call: later(600)]
    before = len(host.calls)
    with pytest.raises(RemoteError, match="asks to be left alone for 600 s") as caught:
        store.list(["refs/"])
    assert len(host.calls) == before + 1
    assert re.search(r"repeat it after \d\d:\d\d:\d\d", caught.value.remedy or "")


def test_a_login_page_is_no_bus_that_is_missing(host, tmp_path):
    host.gates = [lambda call: Reply(200, SIGN_IN, (("Content-Type", "text/html"),))]
    with pytest.raises(RemoteRefusedError, match="a page for people") as caught:
        store_at(host, tmp_path).list(["refs/"])
    assert "sign in" in (caught.value.remedy or "")


def test_no_secret_of_a_trace_is_left_behind(host, tmp_path):
    store = store_at(host, tmp_path)
    store.list(["refs/"])
    assert not list((tmp_path / "state").glob("answers-*"))


@pytest.mark.ci
def test_a_runner_starts_while_its_remote_fails_now_and_then(host, tmp_path, capsys):
    url = host.url(tmp_path / "bus.git")
    place = ("--bus", url, "--policy", str(tmp_path / "policy.toml"), "--state", str(tmp_path / "runner"))
    host.gates = [in_turn([BROKEN, LIMITED]), in_turn([Reply(503)], is_upload)]
    assert main(["setup", "--create-bus", "--name", "mini", *place]) == 0, capsys.readouterr().err
    host.gates = [in_turn([BROKEN, LIMITED]), in_turn([Reply(503)], is_upload)]
    assert main(["once", *place]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("broken", ["HEAD", "config", "refs"])
def test_a_repository_of_ours_that_a_power_cut_left_in_pieces_is_made_whole(host, tmp_path, broken):
    store = store_at(host, tmp_path)
    assert swap(store, [update(store)], authority=REF)[REF].landed
    path = tmp_path / "state" / "control.git" / broken
    if broken == "HEAD":
        path.write_bytes(b"")
    elif broken == "config":
        path.unlink()
    else:
        shutil.rmtree(path)
    assert list(store_at(host, tmp_path).list(["refs/"]).refs) == [REF]


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_pushes_through_a_host_that_fails_at_random_arrive_once_each(host, tmp_path, share):
    """A command that ended after its third try is given again, as a person does."""
    dice, faults = random.Random(share), cycle([BROKEN, LIMITED, later(0), Reply(503), Reply(None)])
    host.gates = [lambda call: next(faults) if dice.random() < share else None]
    store = store_at(host, tmp_path, (0.0, 0.0))
    sent = [update(store, number, f"{REF}-{number}") for number in range(200)]
    for each in sent:
        for _ in range(20):
            with suppress(RemoteError):
                assert swap(store, [each], authority=each.ref)[each.ref].tip == each.new
                break
        else:
            raise AssertionError(f"{each.ref} never arrived")
    host.gates = []
    assert tips_of(store, [each.ref for each in sent]) == {each.ref: each.new for each in sent}


@pytest.mark.parametrize(("delay_s", "is_near"), [(0.0, True), (0.3, False)])
def test_what_answers_on_loopback_counts_as_this_machine_only_where_it_answers_as_quickly(
    host, tmp_path, delay_s, is_near
):
    host.delay_s = delay_s
    answers = set()
    for number in range(10 if is_near else 2):  # a busy machine answers late now and then, a far one always
        bus = open_bus(
            host.url(tmp_path / "bus.git"), repository=None, state=tmp_path / f"state-{number}", clock=SystemClock(),
            budget=tmp_path / "pushes.json",
        )  # fmt: skip
        assert bus.hosted
        with pytest.raises(BusMissingError):
            bus.identity()
        answers.add(bus.hosted)
        if not bus.hosted:
            break
    assert (False in answers) is is_near


def test_a_file_url_is_this_machine(tmp_path):
    url = f"file://{bare(tmp_path / 'bus.git')}"
    assert not open_bus(url, repository=None, state=tmp_path / "state", clock=SystemClock()).hosted
