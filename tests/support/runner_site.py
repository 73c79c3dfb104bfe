"""A bus folder, a policy whose interpreter is a small script, and the real command as a process."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.bus.refbus import RefBus
from bridge.bus.views import RequestRef
from bridge.cli.host.main import main
from bridge.cli.table.runner_commands import RUNNER
from bridge.cli.table.runner_options import PlaceOptions
from bridge.records.claim import Claim
from bridge.system.clock import SystemClock
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.support.claims import Claims
from tests.support.forked import Forked, command
from tests.support.interpreter import write_interpreter
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
HOST = "bridge.cli.host.main"
# Asked to run the engine it counts, waits and writes an empty report.
WORK = """\
echo "$KAKEYA_RUN_ID" >> {folder}/counted/starts
echo working
{work}
printf '{{}}' > "$KAKEYA_OUT/probe.json"
"""
POLICY = """schema = 1
name = "{name}"
interpreter = "{interpreter}"
rate_per_hour = 0
[presets]
folder = "{folder}/presets"
[sandbox]
mode = "off"
read_only = ["{folder}/counted"]
"""
PRESET = """schema = 1
name = "count"
status = "ready"
description = "count a start, do what the test says, write an empty report"
gate_profile = "probe"
[[commands]]
name = "count"
argv = ["${engine}", "count"]
[[outputs]]
path = "probe.json"
kind = "environment_probe"
[limits]
wall_s = 300.0
[sandbox]
mode = "off"
"""


@dataclass(frozen=True)
class Ran:
    """What a command came to."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Site:
    """Everything one test needs on disk."""

    folder: Path
    work: str = ":"
    lease_s: float = 15.0
    runners: list[Forked] = field(default_factory=list)

    def __post_init__(self) -> None:
        subprocess.run(["git", "init", "-q", "--bare", self.folder / "bus.git"], check=True)
        (self.folder / "presets").mkdir(mode=0o700)
        (self.folder / "presets" / "count.toml").write_text(PRESET)
        (self.folder / "presets" / "count.toml").chmod(0o600)
        (self.folder / "counted").mkdir()
        (self.folder / "counted").chmod(0o777)
        self.interpreter = self.folder / "python"
        self.set_work(self.work)
        self.route = f"file://{self.folder}/bus.git"
        self.claims = Claims(self.folder / "bus.git", self.requester)

    def set_work(self, work: str) -> None:
        write_interpreter(self.interpreter, WORK.format(folder=self.folder, work=work))

    def create_bus(self, **changes: object) -> None:
        record = new_record(CLOCK, wake="poll", local=True)
        self.requester().create(record.evolve(lease_s=self.lease_s, **changes))

    def requester(self) -> RefBus:
        return open_bus(self.route, repository=None, state=self.folder / "requester", clock=CLOCK)

    def policy(self, name: str = "mini") -> Path:
        path = self.folder / f"{name}.toml"
        path.write_text(POLICY.format(name=name, interpreter=self.interpreter, folder=self.folder))
        path.chmod(0o600)
        return path

    def command(self, *arguments: str, name: str = "mini") -> list[str]:
        """Return a command as somebody would type it."""
        return [sys.executable, "-m", HOST, *self.words(*arguments, name=name)]

    def words(self, *arguments: str, name: str = "mini") -> list[str]:
        """Return the words of a command for a runner of this name, whose policy is made when there is none."""
        policy = self.folder / f"{name}.toml"
        if not policy.exists():
            self.policy(name)
        command, rest = RUNNER.find(list(arguments))
        if command is None or not issubclass(command.options, PlaceOptions):
            return list(arguments)
        places = ("--policy", str(policy), "--state", str(self.folder / f"state-{name}"))
        return [*command.name.split(), *places, *rest]

    def run(self, *arguments: str, name: str = "mini") -> Ran:
        """Run a command in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(self.words(*arguments, name=name))
        return Ran(code, out.getvalue(), err.getvalue())

    def start(self, *arguments: str, name: str = "mini") -> Forked:
        """Start a command in a process of its own; what it says goes to the log of its name."""
        log, words = self.folder / f"{name}.log", self.words(*arguments, name=name)
        log.touch()
        process = Forked(command, (HOST, words), cwd=ROOT, stderr=log)
        self.runners.append(process)
        return process

    def end(self) -> None:
        """Ask every runner to end, and wait until all have."""
        for process in self.runners:
            process.terminate()
        for process in self.runners:
            process.wait(timeout=240)

    def ask(self, preset: str = "count", **changes: object) -> RequestRef:
        bus = self.requester()
        return push(bus, make_request(bus.identity().bus_id, preset, **changes))

    def claim(self, ref: RequestRef) -> Claim | None:
        """Return a run's claim."""
        return self.claims.claim(ref.id)

    def starts(self) -> list[str]:
        file = self.folder / "counted" / "starts"
        return file.read_text().split() if file.exists() else []

    def until(self, what: Callable[[], object], why: str, within_s: float = 240.0) -> None:
        """Wait until something holds; the bound is only there to end a broken test."""

        def said() -> str:
            return "\n".join([why, *(log.read_text() for log in self.folder.glob("*.log"))])

        until(what, patience_s=within_s, why=said)

    def ended(self, ref: RequestRef) -> Claim:
        """Wait for a run's end and return its terminal claim; its result verifies."""
        self.until(lambda: self.claims.end(ref.id), "never ended")
        claim = self.claims.end(ref.id)
        assert claim is not None
        assert claim.result_oid is not None
        assert verify_tree(self.requester().read_result(claim.result_oid).files, run_id=ref.id) == []
        return claim


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(**changes: object) -> Site:
        tmp_path.chmod(0o700)
        made = Site(tmp_path, **changes)
        sites.append(made)
        return made

    yield make
    for process in (process for made in sites for process in made.runners):
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()
