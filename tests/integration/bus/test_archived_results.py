"""Results that only an archive holds, after the remote has thrown away what no ref leads to."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.store.gather import WorkBudget
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from bridge.presets.installed import registry
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import link_to
from bridge.runner.machine.machine import Machine
from bridge.runner.maintenance.bus_checks import check_listing
from bridge.runner.policy.file import read_policy
from bridge.runner.service.loop import Runner
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.log import new_log
from bridge.system.clock import SystemClock
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.fakes.fake_executor import FakeExecutor
from tests.fakes.git_servers import bare, git
from tests.fakes.memory_bus import bus_record
from tests.support.runner_world import FixedCode, Lines, probe

CLOCK = SystemClock()
POLICY = b'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\n'
DAY_S = 24 * 3600.0
RUNS = 3


@dataclass
class Later:
    """The machine's clock some days on."""

    days: float

    def now(self) -> dt.datetime:
        return CLOCK.now() + dt.timedelta(days=self.days)

    def steady_s(self) -> float:
        return CLOCK.steady_s() + self.days * DAY_S

    def sleep(self, seconds: float) -> None:
        CLOCK.sleep(seconds)


def mac(words: list[str], folder: Path) -> dict[str, Any]:
    """Run a command as a requester without a clone would, and return its document."""
    home = {name: str(folder / name.lower()) for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    done = subprocess.run(
        [sys.executable, "-m", "bridge.cli.mac.main", *words, "--json"],
        env={**os.environ, **home}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def open_over(protocol: str, remote: Path, state: Path) -> RefBus:
    """Open the bus over a protocol of git, as it is days later."""
    state.mkdir()
    route = Route(str(remote), "here", (("protocol.version", protocol),), is_local=True)
    clock = Later(4.0)
    return RefBus(GitStore(route, state), clock=clock, pacer=Pacer(None, 60.0, clock))


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return a remote whose runs are in an archive alone, and their ids."""
    folder = tmp_path_factory.mktemp("archived")
    remote = bare(folder / "remote.git")
    bus = open_bus(str(remote), repository=None, state=folder / "bus", clock=CLOCK)
    bus.create(bus_record(CLOCK))
    state = StateFolder(folder / "runner")
    state.create()
    runner = Runner(
        OwnerRules(read_policy(POLICY), dict(registry())),
        Machine(FakeExecutor(CLOCK, probe), FixedCode(), "0"),
        OpenState.open(state, "mini", CLOCK),
        link_to(bus, CLOCK),
        clock=CLOCK,
        stopping=threading.Event(),
        log=new_log(Lines([])),
    )
    refs = [push(bus, make_request(bus.identity().bus_id, "mlx-env-probe", now=CLOCK.now())) for _ in range(RUNS)]
    while len(runner.outcomes) < RUNS:
        runner.step()
        runner.join()
    later = open_over("2", remote, folder / "later")
    done = list(later.archive("mini", budget=WorkBudget(50), drop_after_s=2 * DAY_S))
    assert sum("/claim/" in ref for ref in done) == RUNS
    git("gc", "--quiet", "--prune=now", cwd=remote)
    ref_names = git("for-each-ref", "--format=%(refname)", cwd=remote).splitlines()
    assert [ref for ref in ref_names if "/archive/" not in ref] == ["refs/kakeya/bus", "refs/kakeya/runner/mini"]
    return remote, [ref.id for ref in refs]


@pytest.mark.parametrize("protocol", ["2", "0"])
def test_every_result_still_verifies_when_the_remote_has_thrown_everything_else_away(
    archived: tuple[Path, list[str]], tmp_path: Path, protocol: str
) -> None:
    remote, run_ids = archived
    reader = open_over(protocol, remote, tmp_path / "reader")
    assert [archived_run.tip.claim.id for archived_run in reader.archived()] == sorted(run_ids, reverse=True)
    for run_id in run_ids:
        view = reader.view(run_id)
        assert view.claim is not None
        assert view.claim.claim.result_oid is not None
        assert verify_tree(reader.read_result(view.claim.claim.result_oid).files, run_id=run_id) == []


def test_a_requester_lists_and_fetches_and_verifies_archived_runs(
    archived: tuple[Path, list[str]], tmp_path: Path
) -> None:
    remote, run_ids = archived
    bus = ["--bus", str(remote)]
    listed = mac(["ls", "--all", *bus], tmp_path)["data"]
    assert [row["id"] for row in listed] == sorted(run_ids, reverse=True)
    assert {(row["state"], row["reason"]) for row in listed} == {("published", "gate_rejected")}
    assert mac(["fetch", run_ids[0][-8:], *bus], tmp_path)["outcome"]["reason"] == "gate_rejected"
    assert mac(["verify", run_ids[2], *bus], tmp_path)["outcome"]["reason"] == "unsigned"  # whole, and nobody signed it


def test_doctor_says_that_a_remote_sends_every_ref(archived: tuple[Path, list[str]], tmp_path: Path) -> None:
    remote, _ = archived
    finding = check_listing(open_over("2", remote, tmp_path / "v2"), CLOCK)
    assert finding.remedy is None
    assert "each push is answered with all refs, over protocol v2 too: about" in finding.text
    finding_v0 = check_listing(open_over("0", remote, tmp_path / "v0"), CLOCK)
    assert finding_v0.level == "ok"  # a handful of refs
    assert "drop_after_days" in str(finding_v0.remedy)
