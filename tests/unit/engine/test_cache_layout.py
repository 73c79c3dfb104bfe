"""A cache layout is a text that reads back as itself, and a target that cannot have it is refused by name."""

from __future__ import annotations

import pytest

from engine.errors import UsageError
from engine.structure.layout import CacheLayout

TEXTS = ["native", "full", "affine8", "affine4", "affine8/32", "affine4/2", "sink0+window1", "sink4+window64"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_layout_reads_back_as_itself(text: str) -> None:
    assert str(CacheLayout.parse(text)) == text
    assert CacheLayout.parse(text).lossless == (text in {"native", "full"})


@pytest.mark.parametrize(
    "text",
    ["", "Native", "affine", "affine16", "affine8/0", "affine8/", "sink4", "sink4+window0", "sink-1+window4", "x"],
)
def test_what_names_no_layout_is_refused_with_what_does(text: str) -> None:
    with pytest.raises(UsageError, match="expected native, full, affine8"):
        CacheLayout.parse(text)


def test_a_group_is_the_largest_divisor_of_the_head_up_to_64_unless_it_is_named() -> None:
    sizes = {head: CacheLayout.parse("affine8").group_of(head) for head in (8, 48, 64, 80, 128, 256, 512)}
    assert sizes == {8: 8, 48: 48, 64: 64, 80: 40, 128: 64, 256: 64, 512: 64}
    assert CacheLayout.parse("affine4/32").group_of(128) == 32


@pytest.mark.parametrize(
    ("text", "windows", "head_dims", "message"),
    [
        ("affine8/32", (None, 8), (64, 48), "affine8/32 on heads of 48 values"),
        ("affine4", (None,), (7,), "an even head for 4 bits"),
        ("sink4+window64", (8, 8), (32, 32), "bounds full-attention layers and the target has none"),
    ],
)
def test_a_target_that_cannot_have_a_layout_is_refused(text, windows, head_dims, message) -> None:
    with pytest.raises(UsageError, match=message):
        CacheLayout.parse(text).check(windows, head_dims)
