"""A remote that fails between a run's claim and its start: the claim is kept, and the run begins once, later."""

from __future__ import annotations

import pytest

from tests.fakes.git_host import NO_COMMIT, GitHost, Reply, in_turn, is_upload


@pytest.mark.ci
def test_a_run_whose_start_the_remote_does_not_take_begins_later_and_ends_by_itself(site):
    s = site(lease_s=3.0)
    s.create_bus()
    ref = s.ask()
    host = GitHost(s.folder)

    def moves_claim(call):
        return is_upload(call) and any("/claim/" in name and old != NO_COMMIT for old, _, name in call.updates)

    host.gates = [in_turn([Reply(503, b"unavailable\n")] * 12, moves_claim)]
    try:
        ran = s.run("once", "--bus", host.url(s.folder / "bus.git"))
    finally:
        host.close()
    assert "not begun yet" in ran.stderr
    assert s.ended(ref).reason == "gate_rejected"  # an empty report: it ran to its end
    assert s.starts() == [ref.id]
    assert ran.code == 1
