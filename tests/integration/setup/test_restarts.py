"""A service manager restarts the runner as its recorded unit says, and the run that goes on is published once."""

from __future__ import annotations

import contextlib
import os
import plistlib
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.setup.test_units import settings
from tests.support.run_unit import listening
from tests.support.runner_site import site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="root makes the unit's user"),
]
__all__ = ["site"]
GOLDEN = Path(__file__).parent / "golden"
WORK = "while [ ! -e {folder}/counted/go-on ]; do sleep 0.1; done"


class Systemd:
    """What `systemctl restart` does to the runner's unit: its control group is what the unit's process started."""

    def __init__(self) -> None:
        self.kill_mode = settings((GOLDEN / "linux-unit.txt").read_text())["KillMode"]

    def restart(self, runner: subprocess.Popen[str]) -> None:
        """systemd.kill(5): TERM for the main process, KILL for the rest of the control group once it has ended."""
        assert self.kill_mode == ["mixed"]
        group = psutil.Process(runner.pid).children(recursive=True)
        runner.terminate()
        runner.wait(timeout=240)
        for process in group:
            with contextlib.suppress(psutil.Error):
                process.kill()


class Launchd:
    """What `launchctl kickstart -k` does to the daemon."""

    def __init__(self) -> None:
        shown = (GOLDEN / "mac-dry-run.txt").read_text().partition("org.kakeya.runner.plist")[2].splitlines()[1:]
        text = "\n".join(line.partition("| ")[2] for line in shown if "|" in line).partition("</plist>")[0]
        self.abandons = plistlib.loads((text + "</plist>").encode())["AbandonProcessGroup"]

    def restart(self, runner: subprocess.Popen[str]) -> None:
        """launchd.plist(5): the process is killed, and its process group with it unless that is abandoned."""
        if not self.abandons:
            os.killpg(runner.pid, signal.SIGKILL)
        runner.kill()
        runner.wait(timeout=240)


@pytest.mark.parametrize("manager", [Systemd, Launchd])
def test_a_run_goes_on_through_a_restart_of_the_runner_and_is_published_once(site, tmp_path, manager) -> None:
    made = site()
    made.set_work(WORK.format(folder=made.folder))
    with contextlib.ExitStack() as stack:
        if manager is Systemd:  # a Mac has no unit of a run's own; its runs are in sessions of their own
            path = stack.enter_context(listening(tmp_path / "run.sock", [made.interpreter, made.folder / "counted"]))
            policy = made.policy()
            policy.write_text(policy.read_text() + f'socket = "{path}"\n')
        runner = made.start("serve", "--bus", made.route, "--create-bus")
        made.until(lambda: "serves" in (made.folder / "mini.log").read_text(), "it never served")
        ref = made.ask()
        made.until(made.starts, "the run never started")
        manager().restart(runner)
        assert made.claim(ref).state == "started"

        made.start("serve", "--bus", made.route)
        (made.folder / "counted" / "go-on").touch()
        assert made.ended(ref).reason == "gate_rejected"  # an empty report: the program ran to its end
    assert made.starts() == [ref.id]
