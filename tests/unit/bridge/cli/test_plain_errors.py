"""What the machine refuses is one clear message with what to do next, in both programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge import errors
from bridge.cli.boundary import as_known
from bridge.cli.host import main as runner
from bridge.client.connection.pins import RefusedResultError
from bridge.client.connection.session import BusSession
from bridge.client.document.envelope import of_error
from bridge.ids import short
from bridge.trust.judgement import TrustAnswer
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said_to_be_one() -> None:
    with pytest.raises(OSError, match="space") as caught, Path("/dev/full").open("w", buffering=1) as file:
        file.write("x\n")
    error = as_known(caught.value, "look elsewhere")
    assert "No space left on device" in error.message
    assert error.remedy is not None
    assert error.remedy.startswith("free some space")


def test_the_runner_ends_without_a_traceback_where_its_state_cannot_lie(tmp_path, capsys) -> None:
    (tmp_path / "file").write_text("x")
    policy = tmp_path / "policy.toml"
    policy.write_text('schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\n')
    policy.chmod(0o600)
    tmp_path.chmod(0o700)
    code = runner.main(["once", "--bus", "x", "--policy", str(policy), "--state", str(tmp_path / "file" / "state")])
    stderr = capsys.readouterr().err
    assert code == 3
    assert "Not a directory" in stderr
    assert "next    choose another folder with --state" in stderr
    assert "Traceback" not in stderr


def test_a_runner_without_a_policy_is_told_to_set_one_up(tmp_path, capsys) -> None:
    assert runner.main(["serve", "--bus", "x", "--policy", str(tmp_path / "policy.toml")]) == 2
    stderr = capsys.readouterr().err
    assert "there is no such file" in stderr
    assert "next    kakeya-runner setup --bus ROUTE" in stderr


class OnThisMachine(Requester):
    """A requester whose bus's runner writes its words where the client can read them."""

    runner_line = ""

    def open(self, settings, clock) -> BusSession:
        return replace(super().open(settings, clock), runner_words=lambda: self.runner_line)


def test_a_wait_says_why_the_runner_on_this_machine_does_not_start(tmp_path) -> None:
    requester = OnThisMachine(tmp_path)
    ScriptedHost(requester.bus, requester.clock).beat()
    sent = requester.run("run", "mlx-env-probe").out.strip()
    requester.runner_line = f"2026-11-20T10:00:00.000Z {short(sent)} waits: 0 bytes of disk are free"
    ran = requester.run("attach", sent, "--wait-timeout", "40")
    assert ran.code == 8
    assert "the runner on this machine waits: 0 bytes of disk are free" in ran.err
    requester.runner_line = "2026-11-20T10:00:00.000Z 00000000 waits: all slots are busy"
    assert "on this machine waits" not in requester.run("attach", sent, "--wait-timeout", "40").err


def test_a_result_that_is_signed_by_another_key_leads_to_comparing_the_pinned_one() -> None:
    why = "not signed for this place by vm with AAAA"
    assert "compare the key you pinned" in str(RefusedResultError("x", TrustAnswer("untrusted", why)).remedy)
    assert RefusedResultError("x", TrustAnswer("altered", why)).remedy == "kakeya-mac verify x"


def test_a_parameter_out_of_bounds_leads_to_where_the_bounds_are(tmp_path) -> None:
    requester = Requester(tmp_path)
    ScriptedHost(requester.bus, requester.clock).beat()
    ran = requester.run("explain", "k3-fused-allmlx-code", "-p", "depth=99")
    assert ran.code == 2
    assert "got '99', expected 0 to 15" in ran.err
    assert "kakeya-mac presets show" in ran.err


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        (errors.RemoteError, True),
        (errors.RemoteRefusedError, False),
        (errors.BusError, True),
        (errors.NoRunnerError, True),
        (errors.ObjectError, False),
        (errors.BusMissingError, False),
        (errors.WrongBusError, False),
        (errors.PendingError, True),
        (errors.UsageError, False),
    ],
)
def test_only_what_may_end_differently_by_itself_is_retryable(kind, retryable):
    assert of_error(kind("no"), "run")["outcome"]["retryable"] is retryable
