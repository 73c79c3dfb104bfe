"""`logs -f` ends with every kind of run, also those that never executed and so never sent the end of a log."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("reason", ["request_rejected", "policy_refused", "expired", "cancelled", "interrupted"])
def test_a_run_that_was_claimed_and_never_executed(requester, host, reason):
    sent = requester.run("run", "mlx-env-probe").out.strip()

    def end() -> None:
        host.claim(sent)
        host.logs[sent] = f"kakeya: {reason}: because\n".encode()
        host.finish(sent, reason, message="because", program_exit=None)

    requester.clock.plan(3.0, end)
    ran = requester.run("logs", "-f", sent)
    assert ran.code == 0
    assert f"kakeya: {reason}: because" in ran.out
    assert ran.out.splitlines()[-1].startswith("--- end of untrusted log")
    assert f"{reason}: because" in ran.err


def test_a_request_that_nobody_ever_claimed(requester, host):
    sent = requester.run("run", "mlx-env-probe", "--expires", "60").out.strip()
    ran = requester.run("logs", "-f", sent)
    assert ran.code == 0
    assert "expired: nobody started it" in ran.err


def test_a_run_whose_runner_vanished(requester, host):
    sent = requester.run("run", "mlx-env-probe").out.strip()
    host.claim(sent)
    host.start(sent)
    ran = requester.run("logs", "-f", sent)
    assert ran.code == 0
    assert "runner_lost" in ran.err
