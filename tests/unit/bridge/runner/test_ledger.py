"""A request is let in once; the ledger outlives its expiry, a kill and a clock set back."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import RequestRejectedError
from bridge.runner.state.database import StateDatabase
from bridge.runner.state.ledger import KEPT, Ledger
from tests.fakes.asking import make_request
from tests.fakes.requester import StepClock

ROOT = Path(__file__).parents[4]
ONE, TWO = "1" * 40, "2" * 40
BUS = "b" * 32


@pytest.fixture
def clock():
    return StepClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.sqlite"


def test_the_same_claim_goes_on_and_another_claim_is_a_replay(path, clock):
    ledger = Ledger(StateDatabase(path), clock)
    request = make_request(BUS, "mlx-env-probe", now=clock.now())
    data = request.canonical()
    ledger.admit(request, data, ONE, "agent")
    ledger.admit(request, data, ONE, "agent")
    assert ledger.count() == 1
    for again in (ledger, Ledger(StateDatabase(path), clock)):
        with pytest.raises(RequestRejectedError, match="a request runs once"):
            again.admit(request, data, TWO, "agent")


def test_another_request_under_the_same_id_is_refused(path, clock):
    ledger = Ledger(StateDatabase(path), clock)
    request = make_request(BUS, "mlx-env-probe", now=clock.now())
    ledger.admit(request, request.canonical(), ONE, "agent")
    other = request.evolve(profile="claim")
    with pytest.raises(RequestRejectedError):
        ledger.admit(other, other.canonical(), ONE, "agent")


def test_it_outlives_every_validity_and_a_clock_set_back(path, clock):
    request = make_request(BUS, "mlx-env-probe", now=clock.now())
    Ledger(StateDatabase(path), clock).admit(request, request.canonical(), ONE, "agent")
    for days in (2, KEPT.days - 1, -20):
        clock.at = clock.begun + dt.timedelta(days=days)
        with pytest.raises(RequestRejectedError):
            Ledger(StateDatabase(path), clock).admit(request, request.canonical(), TWO, "agent")
    clock.at = clock.begun + KEPT + dt.timedelta(days=1)
    later = make_request(BUS, "mlx-env-probe", now=clock.now())
    Ledger(StateDatabase(path), clock).admit(later, later.canonical(), ONE, "agent")
    ledger = Ledger(StateDatabase(path), clock)
    assert ledger.count() == 1
    with pytest.raises(RequestRejectedError):
        ledger.admit(later, later.canonical(), TWO, "agent")


@pytest.mark.parametrize("days", [31, 3653])
def test_one_start_with_a_clock_far_ahead_lets_nothing_run_twice(path, clock, days):
    request = make_request(BUS, "mlx-env-probe", now=clock.now())
    Ledger(StateDatabase(path), clock).admit(request, request.canonical(), ONE, "agent")
    clock.at = clock.begun + dt.timedelta(days=days)
    Ledger(StateDatabase(path), clock)
    clock.at = clock.begun + dt.timedelta(hours=1)
    with pytest.raises(RequestRejectedError, match="a request runs once"):
        Ledger(StateDatabase(path), clock).admit(request, request.canonical(), TWO, "agent")


def test_what_was_let_in_is_remembered_after_a_kill(tmp_path, path, clock):
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from bridge.runner.state.ledger import Ledger\nfrom bridge.records.request import Request\n"
        "from bridge.runner.state.database import StateDatabase\n"
        "from bridge.system.clock import SystemClock\n"
        "data = Path(sys.argv[2]).read_bytes()\n"
        f"Ledger(StateDatabase(Path(sys.argv[1])), SystemClock()).admit(Request.parse(data), data, {ONE!r}, 'agent')\n"
        "print('in', flush=True)\ntime.sleep(60)\n"
    )
    request = make_request(BUS, "mlx-env-probe")
    file = tmp_path / "request.json"
    file.write_bytes(request.canonical())
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(file)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait(240)
    process.stdout.close()
    clock.at = dt.datetime.now(dt.UTC)
    with pytest.raises(RequestRejectedError):
        Ledger(StateDatabase(path), clock).admit(request, request.canonical(), TWO, "agent")
