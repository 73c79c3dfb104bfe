"""A listing alone says what is pending: the id is in the branch's name, and comes back out of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import UsageError
from bridge.ids import new_id
from bridge.request import DEFAULT_TEMPLATE, cancel_branch, cancelled_id_of, request_branch, run_id_of

AGENT = "AgentMemory/mac-bridge-{preset}-{id}-4f2a"
IDS = st.builds(new_id, st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
PRESETS = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,40}", fullmatch=True).filter(lambda name: name != "cancel")


@settings(deadline=None, derandomize=True)
@given(template=st.sampled_from([DEFAULT_TEMPLATE, AGENT, "mac-bridge-{preset}-{id}"]), preset=PRESETS, run_id=IDS)
def test_the_id_comes_back_out_of_request_and_cancel_branches(template: str, preset: str, run_id: str) -> None:
    try:
        ref = request_branch(template, preset, run_id)
    except UsageError:
        assert run_id in preset or "-" in preset  # a preset that ends like an id makes the name ambiguous
        return
    assert run_id_of(ref) == run_id
    assert cancelled_id_of(ref) is None
    cancel = cancel_branch(ref)
    assert cancelled_id_of(cancel) == run_id
    assert run_id_of(cancel) is None
    assert cancel != ref


def test_the_two_shapes_of_the_design() -> None:
    run_id = "01k9x3aaaaaaaaaaaaaaaaaaaa"
    plain, agent = request_branch(DEFAULT_TEMPLATE, "p", run_id), request_branch(AGENT, "p", run_id)
    assert plain == f"refs/heads/mac-bridge/p-{run_id}"
    assert cancel_branch(plain) == f"refs/heads/mac-bridge/cancel/{run_id}"
    assert agent == f"refs/heads/AgentMemory/mac-bridge-p-{run_id}-4f2a"
    assert cancel_branch(agent) == f"refs/heads/AgentMemory/mac-bridge-cancel-{run_id}-4f2a"


@pytest.mark.parametrize(
    "ref",
    [
        "refs/heads/main",
        "refs/tags/mac-bridge/p-01k9x3aaaaaaaaaaaaaaaaaaaa",
        "refs/heads/mac-bridge/p-01k9x3",
        "refs/heads/mac-bridge/01k9x3aaaaaaaaaaaaaaaaaaaa",
        "refs/heads/mac-bridge/p-01K9X3AAAAAAAAAAAAAAAAAAAA",
        "refs/heads/mac-bridge/p-01k9x3aaaaaaaaaaaaaaaaaaaa.lock",
        "refs/heads/../mac-bridge/p-01k9x3aaaaaaaaaaaaaaaaaaaa",
        "refs/heads/mac-bridge/p-01k9x3aaaaaaaaaaaaaaaaaaaa\n",
        "",
    ],
)
def test_other_refs_are_no_requests(ref: str) -> None:
    assert run_id_of(ref) is None
    with pytest.raises(UsageError):
        cancel_branch(ref)


def test_the_preset_name_cancel_is_reserved() -> None:
    with pytest.raises(UsageError, match="reserved"):
        request_branch(DEFAULT_TEMPLATE, "cancel", "0" * 26)
