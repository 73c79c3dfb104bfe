"""A remote that refuses the result: the run is over and its result late, which is said, and it arrives later."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.cli.mac.program import Surroundings, main
from bridge.runner.connection.link import link_to
from bridge.runner.service.loop import Runner
from bridge.system.clock import SystemClock
from tests.fakes.git_servers import bare
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record
from tests.fakes.requester import Ran
from tests.support.runner_world import World

pytestmark = pytest.mark.ci

JUDGED = "gate_rejected"  # what the gate says of the report that the faked program writes
# A result arrives with the commit that ends a claim: the only one on a claim ref that has two parents.
REFUSES_RESULTS = """#!/bin/sh
case "$1" in refs/kakeya/claim/*)
  if git rev-parse --verify --quiet "$3^2" >/dev/null; then echo "too large for this server" >&2; exit 1; fi;;
esac
"""


class JumpingClock(SystemClock):
    """Real time, and as much more as anybody wanted to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def steady_s(self) -> float:
        return super().steady_s() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds


@dataclass
class Place:
    remote: Path
    runner: Runner
    world: World
    clock: JumpingClock
    folder: Path

    def run(self, *words: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        own = {"KAKEYA_DATA_DIR": str(self.folder / "data"), "KAKEYA_CONFIG_DIR": str(self.folder / "config")}
        around = Surroundings(out, err, {**own, "KAKEYA_BUS": str(self.remote)}, self.folder, self.clock)
        return Ran(main(list(words), around), out.getvalue(), err.getvalue())

    def refuse_results(self, *, refuse: bool) -> None:
        hook = self.remote / "hooks" / "update"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(REFUSES_RESULTS if refuse else "#!/bin/sh\nexit 0\n")
        hook.chmod(0o755)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    clock = JumpingClock()
    unused = MemoryRemote()
    MemoryBus(unused, clock=clock).create(bus_record(clock))
    world = World(state=tmp_path / "state", remote=unused, clock=clock)
    remote = bare(tmp_path / "bus.git")
    bus = open_bus(str(remote), repository=None, state=tmp_path / "host", clock=clock)
    bus.create(new_record(clock, wake="poll", local=True))
    runner = world.process.on(link_to(bus, clock))
    runner.step()
    (tmp_path / "clone").mkdir()
    return Place(remote, runner, world, clock, tmp_path / "clone")


def told(place: Place, sent: str) -> dict[str, Any]:
    """Return the status once a sign of life has said that the result waits: after a refused push it has no turn yet."""
    for _ in range(40):
        place.clock.sleep(5.0)
        place.runner.step()
        status = place.run("status", sent, "--json").document
        if status["outcome"]["reason"] != "pending":
            break
    return status


def test_a_refused_result_is_publish_failed_now_and_the_result_later(place: Place) -> None:
    sent = place.run("run", "mlx-env-probe").out.strip()
    place.refuse_results(refuse=True)
    place.runner.step()
    place.runner.join()
    status = told(place, sent)
    assert (status["outcome"]["reason"], status["terminal"]) == ("publish_failed", False)
    waited = place.run("wait", sent, "--json")
    assert waited.code == 3
    assert "could not deliver the result" in waited.document["outcome"]["message"]
    assert waited.document["next"] == [["kakeya-mac", "attach", sent]]
    assert place.run("fetch", sent).code == 8
    place.refuse_results(refuse=False)
    place.clock.sleep(600.0)
    place.runner.step()
    done = place.run("wait", sent, "--json").document
    assert (done["outcome"]["reason"], done["terminal"]) == (JUDGED, True)
    assert place.run("fetch", sent).code == 0
    assert len(place.world.executor.executed) == 1


def test_a_late_result_is_tried_again_at_growing_intervals_and_left_alone_by_other_runners(
    place: Place, tmp_path: Path
) -> None:
    sent = place.run("run", "mlx-env-probe").out.strip()
    place.refuse_results(refuse=True)
    place.runner.step()
    place.runner.join()
    tries = len([line for line in place.world.log_lines if "not published yet" in line])
    for _ in range(60):
        place.clock.sleep(1.0)
        place.runner.step()
    later = len([line for line in place.world.log_lines if "not published yet" in line])
    assert tries + 2 <= later <= tries + 6
    other_process = place.world.new_process("other")
    other_bus = open_bus(str(place.remote), repository=None, state=tmp_path / "other-bus", clock=place.clock)
    other = other_process.on(link_to(other_bus, place.clock))
    for _ in range(3):
        other.step()
        other.join()
        place.clock.sleep(60.0)
    place.refuse_results(refuse=False)
    place.clock.sleep(600.0)
    place.runner.step()
    assert place.run("wait", sent, "--json").document["outcome"]["reason"] == JUDGED
