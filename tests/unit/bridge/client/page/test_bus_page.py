"""The page of a bus: who runs, who waits in which order, what ended; 500 runs in 300 kB."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge.client.document.parts import RunRow
from bridge.client.evidence.history import HistoryRow
from bridge.client.page.bus_page import BusView, page_of_bus
from bridge.client.page.writing import BUS_PAGE_BYTES, room_for_pictures
from bridge.ids import short
from bridge.run.state import RunState
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.unit.bridge.cli.looking import claim, take
from tests.unit.bridge.client.page.test_page import read

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


def test_runners_queue_and_last_runs_are_on_one_page(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    requester.pin(host.sign())
    done = requester.run("run", "mlx-env-probe").out.strip()
    take(host, done)
    requester.run("fetch", done)
    waiting = []
    for _ in range(2):
        requester.clock.sleep(1)
        waiting.append(requester.run("run", "mlx-env-probe", "--new").out.strip())
    host.beat()
    ran = requester.run("open", "--html")
    assert ran.code == 0, ran.err
    _, text = read(ran.out.strip())
    assert "1 of 1 runners are awake, 0 running, 2 waiting" in text
    assert text.index(short(waiting[0])) < text.index(short(waiting[1])) < text.index("Last runs")
    assert text.index("Last runs") < text.index(short(done))
    assert "mini" in text


@pytest.mark.parametrize("signed", [True, False])
def test_the_verdict_of_a_host_is_on_the_page_only_where_a_known_key_signed_it(requester, signed):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    if signed:
        requester.pin(host.sign())
    run_id = requester.run("run", "mlx-env-probe").out.strip()
    take(host, run_id, decision="evidence", claims=(claim(value=987.6, interval=None),))
    assert requester.run("fetch", run_id).code == 0
    ran = requester.run("open", "--html")
    assert ran.code == 0, ran.err
    page = Path(ran.out.strip()).read_text()
    assert short(run_id) in page
    assert ('<span class="evidence">' in page, "987.6" in page) == (signed, signed)


def test_a_result_whose_key_is_another_than_the_pinned_one_shows_no_verdict(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    requester.pin(host.sign())
    run_id = requester.run("run", "mlx-env-probe").out.strip()
    take(host, run_id, decision="evidence", claims=(claim(value=987.6, interval=None),))
    assert requester.run("fetch", run_id).code == 0
    requester.pin(ScriptedHost(requester.bus, requester.clock, "other").sign().replace("other=", "mini="))
    page = Path(requester.run("open", "--html").out.strip()).read_text()
    assert short(run_id) in page
    assert ('<span class="evidence">' in page, "987.6" in page) == (False, False)


def test_without_an_id_only_the_page_of_the_bus_opens(requester):
    ran = requester.run("open")
    assert (ran.code, "the page of the bus: kakeya-mac open --html" in " ".join(ran.err.split())) == (2, True)


def test_five_hundred_runs_are_a_small_page_and_nothing_in_it_is_markup():
    states = (RunState.DONE, RunState.QUEUED, RunState.RUNNING)
    runs = [
        RunRow(
            id=f"{at:026}", short=f"{at:08}", state=states[at % 3], preset="my-train", profile="smoke", reason="passed",
            verdict="evidence", runner="mini", created=None, age_s=60.0, fetched=False, took_s=12.0,
            metric="0.608 [0.594, 0.634] squared error",
            options=f"lr=0.{at} {HOSTILE} data={'x' * 200}",
        )
        for at in range(500)
    ]  # fmt: skip
    history = [
        HistoryRow(
            id=f"{at:026}", ended="2026-11-29T10:00:00Z", params=f"lr=0.{at}", host="mini", code="a" * 40,
            metric=f"metric-{at % 3}", value=at / 100, interval=None, unit="squared error", better="lower",
            decision="evidence", text="", quotation="quotable", profile="smoke", role="primary",
        )
        for at in range(120)
    ]  # fmt: skip
    view = BusView(HOSTILE, "now", (), runs, dict.fromkeys(("a", "b", "c"), history), {})
    room = room_for_pictures(view)
    page = page_of_bus(replace(view, pictures={"curve.png": b"\x89PNG\r\n\x1a\n".ljust(room, b"x")}))
    assert room > 10_000
    assert "data:image/png" in page
    assert len(page.encode()) < BUS_PAGE_BYTES == 300_000
    assert "<script" not in page


def test_the_runner_of_this_machine_is_not_missing_while_nobody_asks_it():
    view = BusView("of this machine", "now", (), (), {}, {}, embedded=True)
    page = page_of_bus(view)
    assert '<p class="verdict held">the runner of this machine starts with the next request, 0 running' in page
    assert '<p class="verdict missing">0 of 0 runners are awake' in page_of_bus(replace(view, embedded=False))
