"""Sending once: killed clients, lost replies, forged keys."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from bridge.bus.tree import check_path
from bridge.client.clone.config import discover
from bridge.client.clone.run_ids import resolve
from bridge.client.clone.store import Sent, Store
from bridge.client.connection.session import BusSession
from bridge.client.send.draft import build, choose_runner, draft_of_preset, parse_selector, without_sandbox
from bridge.client.send.parameters import split, typed, untyped
from bridge.client.send.submit import find_live, pushed, submit, written_down
from bridge.errors import (
    IntegrityError,
    ParameterError,
    RemoteError,
    RequestRejectedError,
    RunNotFoundError,
    UsageError,
)
from bridge.ids import new_id
from bridge.presets.installed import find
from bridge.presets.model import Preset
from bridge.records.request import Request, RunnerSelector
from bridge.request import DEFAULT_TEMPLATE, request_branch
from bridge.system.clock import SystemClock
from tests.fakes.memory_bus import Faults, MemoryBus
from tests.fakes.requester import StepClock
from tests.fakes.scripted_host import ScriptedHost


def make_session(folder, faults=None, remote=None):
    clock = StepClock()
    bus = MemoryBus(remote, clock=clock)
    bus.store.faults = faults or Faults()
    environment = {"KAKEYA_DATA_DIR": str(folder), "KAKEYA_CONFIG_DIR": str(folder / "config")}
    settings = discover(folder, environment, "memory")
    return BusSession(settings, bus, bus.identity(), Store(settings.state_dir), clock)


def draft(**changes):
    fields = {"workload": None, "runner": parse_selector(None), "expires_s": None}
    return draft_of_preset(find("mlx-env-probe"), {}, "smoke", **{**fields, **changes})


def test_a_request_without_a_sandbox_is_for_this_machine_only(session):
    with pytest.raises(UsageError, match="--unsandboxed is for your own machine") as caught:
        without_sandbox(session, draft())
    assert "--bus embedded" in caught.value.remedy
    choice = replace(session.settings.bus, route=None, bus_id=None)
    here = replace(session, settings=replace(session.settings, bus=choice))
    request = build(here, without_sandbox(here, draft()))
    assert request.unsandboxed
    assert b'"unsandboxed":true' in request.canonical()
    assert request.idempotency_key != build(session, draft()).idempotency_key
    assert b"unsandboxed" not in build(session, draft()).canonical()


def ask(session, request_draft, *, new=False):
    live = None if new else find_live(session, request_draft)
    return pushed(session, live or written_down(session, request_draft), first=live is None, warn=print)


@pytest.fixture
def session(tmp_path):
    return make_session(tmp_path)


@pytest.mark.parametrize("fate", ["lost", "unanswered", "delayed"])
def test_a_push_that_failed_goes_on_with_the_same_id_and_the_same_bytes(tmp_path, fate):
    fates = iter([fate])
    session = make_session(tmp_path, Faults(lambda operation: next(fates, None) if operation == "push" else None))
    try:
        first = ask(session, draft()).sent
    except RemoteError:
        first = next(session.store.all_sent())
    again = ask(session, draft())
    assert again.sent == first
    session.bus.store.faults.flush()
    assert [ref.id for ref in session.bus.snapshot().requests] == [first.id]


def test_a_client_killed_between_remembering_and_pushing_goes_on(session):
    request = build(session, draft())
    session.store.remember(Sent(request.id, request.ref, "memory:", request.bus_id, request.canonical()))
    live = find_live(session, draft())
    assert live is not None
    assert live.reattached is False
    assert ask(session, draft()).sent.id == request.id
    assert len(session.bus.snapshot().requests) == 1


def test_a_new_request_costs_one_push_where_the_runners_were_just_seen(tmp_path):
    operations = []
    session = make_session(tmp_path, Faults(operations.append))
    ScriptedHost(session.bus, session.clock).beat()
    assert [runner.beacon.runner for runner in session.runners()] == ["mini"]
    operations.clear()
    submit(session, draft(), new=True, queue=False, warn=print)
    assert operations == ["push"]
    session.clock.sleep(60)
    session.runners()
    assert operations == ["push", "list"]


def test_the_same_draft_that_is_sent_twice_at_once_is_one_run(tmp_path):
    met = threading.Barrier(2)

    def meet(operation):
        if operation == "list":  # each looks on the bus while the other decides, unless one waits for the other
            with suppress(threading.BrokenBarrierError):
                met.wait(0.5)

    session = replace(make_session(tmp_path), clock=SystemClock())
    other = replace(make_session(tmp_path, remote=session.bus.remote), clock=SystemClock())
    session.bus.store.faults = other.bus.store.faults = Faults(meet)
    with ThreadPoolExecutor(2) as pool:
        sent = list(pool.map(lambda each: submit(each, draft(), new=False, queue=True, warn=print), (session, other)))
    assert len({each.sent.id for each in sent}) == 1
    assert len(session.bus.snapshot().requests) == 1


def test_an_expired_request_is_not_gone_on_with(session):
    first = ask(session, draft(expires_s=60.0))
    session.clock.sleep(61)
    assert ask(session, draft()).sent.id != first.sent.id


def test_a_clone_that_forgot_finds_its_run_on_the_bus(session, tmp_path):
    first = ask(session, draft())
    session.store.forget(first.sent.id)
    again = ask(session, draft())
    assert (again.sent.id, again.reattached) == (first.sent.id, True)


def test_a_stranger_cannot_lend_us_another_questions_run(session):
    ours = build(session, draft())
    theirs = build(session, draft(runner=RunnerSelector(name="theirs")))
    named = request_branch(DEFAULT_TEMPLATE, theirs.preset, theirs.id, ours.idempotency_key)
    assert named.rpartition("-")[2] == ours.ref.rpartition("-")[2] == ours.idempotency_key[:12]
    for key in (ours.idempotency_key, theirs.idempotency_key):
        forged = theirs.model_copy(update={"idempotency_key": key, "ref": named, "id": theirs.id})
        session.bus.submit(forged.canonical(), forged.ref, None)
        assert find_live(session, draft()) is None
        del session.bus.remote.refs[named]


@pytest.mark.parametrize("strangers", [0, 42, 300])
def test_a_fresh_clone_asks_a_full_bus_as_often_as_an_empty_one(tmp_path, strangers):
    operations = []
    session = make_session(tmp_path, Faults(operations.append))
    other = make_session(tmp_path / "other", remote=session.bus.remote)
    for number in range(strangers):
        request = build(other, draft(runner=RunnerSelector(name=f"r{number}")))
        other.bus.submit(request.canonical(), request.ref, None, first=True)
    operations.clear()
    assert find_live(session, draft()) is None
    assert operations == ["list"]
    for _ in range(5):  # whatever strangers name after our question: three are read
        request = build(other, draft(runner=RunnerSelector(name="theirs")))
        named = request_branch(DEFAULT_TEMPLATE, request.preset, request.id, build(session, draft()).idempotency_key)
        other.bus.submit(request.evolve(ref=named).canonical(), named, None, first=True)
        other.clock.sleep(1.0)
    operations.clear()
    assert find_live(session, draft()) is None
    assert operations == ["list", *["fetch"] * 3]


def test_what_differs_is_another_run(session):
    ids = {
        ask(session, request_draft).sent.id
        for request_draft in (
            draft(),
            draft(runner=RunnerSelector(name="mini")),
            draft(runner=RunnerSelector(labels=("gpu",))),
        )
    }
    assert len(ids) == 3
    assert ask(session, draft(), new=True).sent.id not in ids


def test_an_unreadable_memory_is_as_good_as_none(session):
    sent = ask(session, draft()).sent
    path = next((session.settings.state_dir / "requests").glob("*.json"))
    path.write_bytes(b"half a docum")
    assert session.store.sent(sent.id) is None
    assert ask(session, draft()).sent.id == sent.id


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        (None, RunnerSelector()),
        ("mini", RunnerSelector(name="mini")),
        ("name:mini", RunnerSelector(name="mini")),
        ("quiet,gpu", RunnerSelector(labels=("gpu", "quiet"))),
        ("gpu,", RunnerSelector(labels=("gpu",))),
    ],
)
def test_selectors(text, selector):
    assert parse_selector(text) == selector


@pytest.mark.parametrize("text", ["", "a b", "x;y", ",", "ünicode", "Mini", "GPU,quiet", "name:a,b", "-a", "a" * 64])
def test_a_selector_that_is_no_name_is_refused(text):
    with pytest.raises(UsageError):
        parse_selector(text)


def test_a_single_word_is_a_label_where_no_runner_has_that_name(session):
    ScriptedHost(session.bus, session.clock).beat(labels=("cuda", "desk"))
    chosen = {text: choose_runner(session, text) for text in (None, "mini", "cuda", "cuda,", "name:cuda", "metal")}
    assert chosen == {
        None: RunnerSelector(),
        "mini": RunnerSelector(name="mini"),
        "cuda": RunnerSelector(labels=("cuda",)),
        "cuda,": RunnerSelector(labels=("cuda",)),
        "name:cuda": RunnerSelector(name="cuda"),
        "metal": RunnerSelector(name="metal"),
    }


def preset_with(**params):
    return Preset.model_validate_json(
        json.dumps({"schema": 1, "name": "p", "status": "planned", "description": "d", "params": params})
    )


PARAMS = {
    "count": {"type": "int", "min": 1, "max": 9, "help": "h"},
    "share": {"type": "float", "min": 0.0, "max": 1.0, "help": "h"},
    "fast": {"type": "flag", "token": "--fast", "help": "h"},
    "mode": {"type": "choice", "choices": ["a", "b"], "help": "h"},
}


def test_a_planned_preset_is_refused_before_anything_is_sent():
    with pytest.raises(UsageError, match="planned, not built yet"):
        draft_of_preset(preset_with(), {}, "smoke", workload=None, runner=RunnerSelector(), expires_s=None)


def test_texts_become_what_the_preset_declares():
    preset = preset_with(**PARAMS)
    values = typed(preset, split(["count=3", "share=0.5", "fast=yes", "mode=a"]))
    assert values == {"count": 3, "share": 0.5, "fast": True, "mode": "a"}


@pytest.mark.parametrize(
    "pair", ["count=1_0", "count=５", "count= 5", "count=x", "share=nan", "share=inf", "fast=maybe", "no=1"]
)
def test_texts_that_only_look_like_values_are_refused(pair):
    with pytest.raises(ParameterError):
        typed(preset_with(**PARAMS), split([pair]))


@pytest.mark.parametrize(
    "text", ["0.00012345678901234567", "0.0000012345678901234567", "0.0007943282347242813", "1e-07", "5e-324"]
)
def test_a_number_is_taken_with_all_the_places_that_programs_print_of_it(text):
    assert typed(preset_with(**PARAMS), {"share": text}) == {"share": float(text)}
    assert untyped({"share": text}) == {"share": float(text)}


@pytest.mark.parametrize("pairs", [["x"], ["=1"], ["a=1", "a=2"]])
def test_pairs_are_name_and_value_once(pairs):
    with pytest.raises(ParameterError):
        split(pairs)


def test_ids_are_found_by_prefix_suffix_and_last_here_before_there():
    old, new = new_id(1, b"0123456789"), new_id(2, b"abcdefghij")
    assert resolve("@last", [old, new], list) == new
    assert resolve(old[-5:], [old, new], list) == old
    assert resolve(new.upper(), [], list) == new
    assert resolve(old[:12], [], lambda: [old]) == old
    with pytest.raises(RunNotFoundError, match="2 runs match"):
        resolve("0", [old, new], list)
    with pytest.raises(RunNotFoundError, match="no run matches"):
        resolve("zzz", [old, new], list)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "a/../b", "a//b", ".git/config", "a\\b", "", "a/.hidden", "x\0"]
)
def test_a_result_file_never_leads_outside(name):
    with pytest.raises(IntegrityError):
        check_path(name)


def test_a_request_that_confirms_is_another_request_and_the_others_keep_their_bytes(session):
    plain, confirming = draft(), replace(draft(), profile="claim", confirms="01jd7zk3v8q4w2m6x9c5b7n1t0")
    first, second = build(session, plain), build(session, confirming)
    assert b"confirms" not in first.canonical()
    assert Request.parse(second.canonical()).confirms == "01jd7zk3v8q4w2m6x9c5b7n1t0"
    assert build(session, replace(plain, profile="claim")).idempotency_key != second.idempotency_key
    with pytest.raises(RequestRejectedError, match="expected another run and profile claim"):
        build(session, replace(confirming, profile="smoke"))
