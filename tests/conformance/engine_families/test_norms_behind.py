"""A model whose norms stand behind attention decodes on its own cache, and says so where rows would be made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import UsageError
from engine.structure.layout import CacheLayout


@pytest.mark.parametrize("name", ["mlx", "torch"])
@pytest.mark.parametrize("layout", ["sink4+window8+pages2x10", "sink4+window8+ftheta4"])
def test_rows_that_would_be_asked_or_made_again_are_refused(loaded: Callable[..., Any], name: str, layout: str) -> None:
    _, target = loaded(name, "olmo2")
    with pytest.raises(UsageError, match="norms behind attention"):
        target.family.caches(CacheLayout.parse(layout))
    assert target.family.caches(CacheLayout.parse("affine8"))
