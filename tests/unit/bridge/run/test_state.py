"""The states of a run: one machine for the bus, which checks claims by it, and for whoever reads them."""

from __future__ import annotations

from itertools import product

import pytest

from bridge.errors import BusError
from bridge.records.claim import Claim
from bridge.run.state import FOLLOWING, RunState, check_first, check_next, state_of


def claim(state: RunState, sequence: int = 0) -> Claim:
    ended = state is RunState.DONE
    record = {
        RunState.CLAIMED: ("claimed", None), RunState.RUNNING: ("started", "running"),
        RunState.JUDGING: ("started", "judging"), RunState.DONE: ("terminal", None),
    }[state]  # fmt: skip
    return Claim(
        id="0" * 26, request_oid="0" * 40, state=record[0], runner="mini", nonce=f"{sequence:032x}", sequence=sequence,
        lease_s=15, phase=record[1], reason="passed" if ended else None, exit_code=0 if ended else None,
        time="2026-11-22T10:00:00.000Z",
    )  # fmt: skip


WRITTEN = (RunState.CLAIMED, RunState.RUNNING, RunState.JUDGING, RunState.DONE)


@pytest.mark.parametrize("state", WRITTEN)
def test_a_claim_shows_the_state_it_was_written_in(state):
    assert state_of(claim(state)) is state


def test_without_a_claim_the_request_decides():
    assert state_of(None) is RunState.QUEUED
    assert state_of(None, requested=False) is RunState.UNKNOWN


@pytest.mark.parametrize(("old", "new"), list(product(WRITTEN, WRITTEN)))
def test_the_bus_takes_a_claim_exactly_where_the_table_lets_its_state_follow(old, new):
    allowed = {
        ("claimed", "claimed"), ("claimed", "started"), ("claimed", "judging"), ("claimed", "published"),
        ("started", "started"), ("started", "judging"), ("started", "published"),
        ("judging", "started"), ("judging", "judging"), ("judging", "published"),
    }  # fmt: skip
    assert (new in FOLLOWING[old]) == ((old.value, new.value) in allowed)
    if new in FOLLOWING[old]:
        check_next(claim(old, 3), claim(new, 4))
    else:
        with pytest.raises(BusError, match="cannot become"):
            check_next(claim(old, 3), claim(new, 4))


@pytest.mark.parametrize("state", WRITTEN)
def test_only_claimed_begins_a_chain(state):
    if state is RunState.CLAIMED:
        check_first(claim(state))
    else:
        with pytest.raises(BusError, match="a chain begins"):
            check_first(claim(state))


def test_only_the_end_is_terminal():
    assert [state for state in RunState if state.terminal] == [RunState.DONE]
