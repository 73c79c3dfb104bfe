"""Presets of a drafter elsewhere: what computes outputs again asks the drafter that was measured."""

from __future__ import annotations

import pytest

from bridge.presets.installed import registry

PRESETS = [name for name in registry() if name.startswith("mlx-distributed-")]


def test_there_are_five_of_them():
    assert len(PRESETS) == 5


@pytest.mark.parametrize("name", PRESETS)
def test_outputs_are_computed_again_with_the_drafter_that_was_measured(name):
    argvs = [command.argv for command in registry()[name].commands if "--assemble" not in command.argv]
    drafters = [argv[argv.index("--drafter") + 1] if "--drafter" in argv else None for argv in argvs]
    assert len(drafters) == (3 if "-e2e-" in name else 2)
    assert len(set(drafters)) == 1
