from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from bridge.executor.command.logs import LogKeeper


def keep(blocks: list[bytes], cap: int, secrets: tuple[str, ...] = ()) -> tuple[LogKeeper, bytes, bytes]:
    heard = bytearray()
    keeper = LogKeeper(heard.extend, cap, secrets)
    for block in blocks:
        keeper.feed(block)
    return keeper, keeper.end(), bytes(heard)


@given(sizes=st.lists(st.integers(0, 300), max_size=30), cap=st.integers(200, 2000))
def test_a_log_is_kept_whole_or_cut_in_the_middle_with_the_cut_counted(sizes, cap):
    whole = "".join(f"{at:04x}" for at in range(sum(sizes) // 4 + 1)).encode()[: sum(sizes)]  # no part stands twice
    ends = list(itertools.accumulate(sizes, initial=0))
    blocks = [whole[begin:end] for begin, end in itertools.pairwise(ends)]
    keeper, log, heard = keep(blocks, cap)

    assert heard == log
    assert keeper.seen_bytes == len(whole)
    if keeper.cut_bytes == 0:
        assert log == whole
    else:
        assert len(log) <= cap
        notice = re.search(rb"\n\[kakeya\] (\d+) bytes of log cut here\n", log)
        assert notice is not None
        assert int(notice.group(1)) == keeper.cut_bytes
        head, tail = log[: notice.start()], log[notice.end() :]
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head) + len(tail) + keeper.cut_bytes == len(whole)


def test_the_head_is_handed_on_at_once():
    heard = bytearray()
    keeper = LogKeeper(heard.extend, 10_000)

    keeper.feed(b"first line\n")

    assert bytes(heard) == b"first line\n"


def test_a_flood_keeps_memory_bounded():
    keeper = LogKeeper(lambda _: None, 4096)
    for _ in range(200):
        keeper.feed(b"x" * 65536)

    assert len(keeper._tail) < 1 << 18
    assert keeper.end().endswith(b"x" * 2000)


def test_redaction_comes_before_the_cap():
    _, log, _ = keep([b"the key is hun", b"ter2-hunter2!"], 4096, ("hunter2-hunter2",))

    assert log == b"the key is [redacted]!"


def test_the_executors_own_lines_are_recognisable():
    heard = bytearray()
    keeper = LogKeeper(heard.extend, 4096)
    keeper.note("something happened")

    assert keeper.end() == b"[kakeya] something happened\n"
