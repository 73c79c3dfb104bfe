"""What the kernel counts of a command's control group, in the words of its cgroup-v2.rst."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.executor.processes.cgroup import Cgroup


@pytest.mark.parametrize("reached", [0, 1])
def test_a_kill_is_put_down_to_the_groups_own_memory_bound_only_where_that_was_reached(tmp_path: Path, reached) -> None:
    """`oom_kill` counts kills by any killer, one for want of the host's memory included; `oom` the bound's alone."""
    (tmp_path / "memory.events").write_text(f"low 0\nhigh 0\nmax 0\noom {reached}\noom_kill 1\noom_group_kill 0\n")
    assert Cgroup(tmp_path).hits() == {"memory": reached}
