"""Which spaces a bus may take requests in: an agent's own, never one that holds other people's branches."""

from __future__ import annotations

import pytest

from bridge.bus.refs import names
from bridge.bus.refs.spaces import DEFAULT_PATTERNS, check_patterns, pattern_of, template_of
from bridge.bus.refs.windows import FEW_MAX_COUNT, sparse_heads, window_prefixes
from bridge.bus.views import ListingWindow
from bridge.errors import UsageError
from bridge.system.clock import SystemClock
from tests.fakes.memory_bus import bus_record

RUN_ID = "01j0000000000000000000000a"
RECORD = bus_record(SystemClock(), request_branches=DEFAULT_PATTERNS)


def test_the_usual_patterns_are_legal_and_each_is_listed_by_a_prefix_of_its_own() -> None:
    check_patterns(DEFAULT_PATTERNS)
    assert len(names.listing_prefixes(DEFAULT_PATTERNS)) == len(DEFAULT_PATTERNS)
    assert pattern_of("bots/devin/") == "bots/devin/mac-bridge-*"


@pytest.mark.parametrize(
    "pattern",
    ["*", "*/mac-bridge-*", "main", "refs/heads/x/mac-bridge-*", "cl?ude/mac-bridge-*", "x/mac-bridge-",
     "a\n/mac-bridge-*", "kakeya/mac-bridge-*", "claude/mac-bridge", "../mac-bridge-*", "a/b/c/d/e/mac-bridge-*", ""],
)  # fmt: skip
def test_a_pattern_that_could_catch_other_peoples_branches_is_refused_by_name(pattern) -> None:
    with pytest.raises(UsageError) as caught:
        check_patterns(("mac-bridge/*", pattern))
    assert repr(pattern.partition("/mac-bridge")[0])[1:-1] in str(caught.value)


def test_a_pattern_inside_another_is_refused() -> None:
    with pytest.raises(UsageError, match="lie inside each other"):
        check_patterns(("claude/mac-bridge-*", "copilot/mac-bridge-*", "claude/mac-bridge-*"))
    with pytest.raises(UsageError, match="inside a prefix"):
        pattern_of("mac-bridge")


@pytest.mark.parametrize(
    ("branch", "template"),
    [
        ("claude/task-011", "claude/mac-bridge-{preset}-{id}"),
        ("copilot/fix-it-4-1f2e", "copilot/mac-bridge-{preset}-{id}-1f2e"),
        ("AgentMemory/a/b-00ff00ff", "AgentMemory/mac-bridge-{preset}-{id}-00ff00ff"),
        ("claude/fix-Login", "claude/mac-bridge-{preset}-{id}"),
        ("main", None),
        ("refs/x", None),
        ("mac-bridge/x", None),
        (None, None),
    ],
)
def test_a_branch_tells_the_space_of_its_agent_and_an_end_that_is_fixed(branch, template) -> None:
    assert template_of(branch) == template


def test_a_window_shows_all_of_a_space_with_few_branches_and_the_recent_ones_of_a_full_one() -> None:
    window = ListingWindow(1_800_000_000_000, ("quick",))
    full = {f"refs/heads/claude/mac-bridge-quick-{RUN_ID}-{number}" for number in range(FEW_MAX_COUNT + 1)}
    sparse = sparse_heads(RECORD, full, None)
    listed = window_prefixes(RECORD, window, sparse)
    assert "refs/heads/codex/mac-bridge-" in listed
    assert "refs/heads/claude/mac-bridge-" not in listed
    assert any(prefix.startswith("refs/heads/claude/mac-bridge-quick-") for prefix in listed)
    assert sparse_heads(RECORD, [], sparse) == sparse  # what was not listed whole says nothing
