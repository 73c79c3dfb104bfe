"""A cache layout is a text that reads back as itself, and a target that cannot have it is refused by name."""

from __future__ import annotations

import pytest

from engine.errors import UsageError
from engine.structure.layout import CacheLayout

TEXTS = [
    "native",
    "full",
    "affine8",
    "affine4",
    "affine8/32",
    "affine4/2",
    "d4x4",
    "e8x8/16",
    "sink0+window1",
    "sink4+window64",
]
PARTS = ["+exact5", "+exact0+exact12", "+pages16x10", "+pages16x10/recent", "+pages16x10/recent+host", "+stream"]
PARTS += ["+pages16x10+layer5", "+exact2+pages16x10/recent+layer0+layer12+host"]
PARTS += ["+stream+host", "+ftheta64", "+exact5+pages16x10+stream+ftheta64"]
PARTS += ["+ftheta@remote", "+ftheta64@remote", "+pages16x10+ftheta64@remote/bfloat16"]


@pytest.mark.parametrize("text", [*TEXTS, *(f"sink4+window64{part}" for part in PARTS)])
def test_a_layout_reads_back_as_itself(text: str) -> None:
    assert str(CacheLayout.parse(text)) == text
    assert CacheLayout.parse(text).lossless == (
        text in {"native", "full"} or ("stream" in text and "ftheta" not in text)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sink4+window64+exact5+exact2", "sink4+window64+exact2+exact5"),
        ("sink4+window64+exact5+exact5", "sink4+window64+exact5"),
        ("sink04+window64", "sink4+window64"),
        ("sink4+window64+pages16x10+layer5+layer2", "sink4+window64+pages16x10+layer2+layer5"),
        ("sink4+window64+pages16x10/codes", "sink4+window64+pages16x10"),
        ("sink4+window64+pages16x10/attention+stream", "sink4+window64+pages16x10+stream"),
    ],
)
def test_a_layout_has_one_text(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"expected it as {expected!r}".replace("+", r"\+")):
        CacheLayout.parse(text)


def test_an_exact_layer_is_native_and_the_others_are_bounded() -> None:
    layout = CacheLayout.parse("sink4+window64+exact5")
    assert layout.of(5) == CacheLayout.NATIVE
    assert (layout.of(4).sink, layout.of(4).window) == (4, 64)


def test_only_the_layers_that_are_named_have_pages() -> None:
    layout = CacheLayout.parse("sink4+window64+exact1+pages16x10/recent+layer5")
    assert layout.of(1) == CacheLayout.NATIVE
    assert layout.of(4) == CacheLayout.parse("sink4+window64")
    assert (layout.of(5).pages, layout.of(5).policy, layout.of(5).evicts) == ((16, 10), "recent", True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Native",
        "affine",
        "affine16",
        "affine8/0",
        "affine8/",
        "d4",
        "e8x16",
        "sink4",
        "sink4+window0",
        "sink-1+window4",
        "x",
        "native+exact1",
        "sink4+window64+stream+exact1",
        "sink4+window64+pages0x1",
        "sink4+window64+layer5",
        "sink4+window64+layer5+pages16x10",
    ],
)
def test_what_names_no_layout_is_refused_with_what_does(text: str) -> None:
    with pytest.raises(UsageError, match="expected native, full, affine8"):
        CacheLayout.parse(text)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            "+pages16x10/attention",
            "pages by 'attention'; expected of pages that are not all read codes, recent",
        ),
        ("+pages16x10/codes+stream", "pages by 'codes'; expected of a stream attention"),
        ("+pages16x10/best", "pages by 'best'; expected"),
        ("+pages16x1", "a pool of 16 rows is smaller than a block, which may have 17"),
        ("+host", "says where evicted rows lie; expected"),
        ("+pages16x10+layer5+stream", r"\+layer5 says which layers alone have pages, and with \+stream"),
        ("+pages16x10+layer5+ftheta64", r"\+layer5 says which layers alone have pages, and with \+stream"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(parts: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CacheLayout.parse(f"sink4+window64{parts}")


def test_a_group_is_the_largest_divisor_of_the_head_up_to_64_unless_it_is_named() -> None:
    sizes = {head: CacheLayout.parse("affine8").group_of(head) for head in (8, 48, 64, 80, 128, 256, 512)}
    assert sizes == {8: 8, 48: 48, 64: 64, 80: 40, 128: 64, 256: 64, 512: 64}
    assert CacheLayout.parse("affine4/32").group_of(128) == 32
    assert [CacheLayout.parse(text).group_of(80) for text in ("d4x4", "e8x4", "e8x4/8")] == [40, 40, 8]
    assert [CacheLayout.parse(text).group_of(12) for text in ("affine8", "d4x8")] == [12, 12]


@pytest.mark.parametrize(
    ("text", "windows", "head_dims", "message"),
    [
        ("affine8/32", (None, 8), (64, 48), "affine8/32 on heads of 48 values"),
        ("affine4", (None,), (7,), "an even head for 4 bits"),
        ("e8x4", (None,), (12,), "groups that divide them and are whole blocks of 8"),
        ("d4x8/6", (None,), (12,), "groups that divide them and are whole blocks of 4"),
        ("sink4+window64", (8, 8), (32, 32), "bounds full-attention layers and the target has none"),
        ("sink4+window64+exact6", (None, 8), (32, 32), r"layer 6 is none of the full-attention layers \[0\]"),
        ("sink4+window64+exact1", (None, 8), (32, 32), r"layer 1 is none of the full-attention layers \[0\]"),
        ("sink4+window64+exact0", (None, 8), (32, 32), "leaves no full-attention layer"),
        (
            "sink4+window64+pages16x10+layer1",
            (None, 8),
            (32, 32),
            r"layer 1 is none of the full-attention layers \[0\]",
        ),
        ("sink4+window64+pages16x10+layer0", (None, 8), (32, 32), r"names every bounded layer of \[0\] with \+layer"),
        (
            "sink4+window64+exact1+pages16x10+layer1",
            (None, None),
            (32, 32),
            "layer 1 keeps every row and has pages; expected one of the two",
        ),
        (
            "sink4+window64+exact1+pages16x10+layer0",
            (None, None),
            (32, 32),
            r"names every bounded layer of \[0, 1\] with \+layer",
        ),
        (
            "sink4+window64+pages16x10",
            (None, 8),
            (30, 32),
            "on heads of 30 values; expected a multiple of 4",
        ),
        ("sink4+window64+stream+host+ftheta9", (None,), (32,), r"with \+ftheta9 they are made again and lie nowhere"),
    ],
)
def test_a_target_that_cannot_have_a_layout_is_refused(text, windows, head_dims, message) -> None:
    with pytest.raises(UsageError, match=message):
        CacheLayout.parse(text).check(windows, head_dims, range(len(windows)))


@pytest.mark.parametrize("text", ["sink4+window60", "sink60+window4+exact0", "sink99999+window8+stream"])
def test_a_window_as_large_as_the_context_leaves_nothing_out(text: str) -> None:
    layout = CacheLayout.parse(text)
    with pytest.raises(UsageError, match="and the target holds 64 positions, so nothing would ever be left out"):
        layout.check((None, None), (32, 32), range(2), 64)
    if "99999" not in text:
        layout.check((None, None), (32, 32), range(2), 65)


def test_a_block_is_within_the_window_where_rows_behind_it_are_made_again() -> None:
    layout = CacheLayout.parse("sink4+window8+ftheta64")
    layout.check_block(8)
    with pytest.raises(UsageError, match=r"a block of 9 rows .* within it\. Widen the window, or draft less"):
        layout.check_block(9)
