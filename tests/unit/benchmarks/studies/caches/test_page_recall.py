"""Page recall: its cases cover every task first, and what is said of them names counts, bounds and savings."""

from __future__ import annotations

from benchmarks.studies.caches import page_recall


def entry(arm: str, right: list[bool], kv_bytes: int, task: str = "recall-one") -> dict[str, object]:
    rows = [{"prompt": f"{task}-{number}", "found": each, "kv_bytes": kv_bytes} for number, each in enumerate(right)]
    return {"case": f"kakeya-tiny-qwen3, {task}, {arm}, part 0", "rows": rows}


def test_every_task_and_arm_comes_before_a_second_part_of_any():
    cases = page_recall.cases()
    assert len(cases) == len(set(cases)) == 2 * 4 * (5 * 15 + 2 * 3)
    first = cases[: 2 * 4 * 7]
    assert all(case.endswith(", part 0") for case in first)
    assert {case.split(", ")[1] for case in first} == set(page_recall.TASKS)
    assert {case.split(", ")[2] for case in first} == set(page_recall.ARMS)


def test_an_arm_is_paired_with_native_on_the_prompts_that_both_answered():
    native, codes = entry("native", [True] * 9 + [False], 1000), entry("codes", [True] * 8 + [False], 100)
    lines = page_recall.summary([native, codes, entry("recent", [False] * 10, 50, "recall-four")])
    assert lines == ["kakeya-tiny-qwen3 recall-one, 1900 tokens: native 9/10, codes 8/9 (> -38 pp, 10.0x)"]


def test_what_is_asked_of_an_arm_is_the_layout_by_its_name():
    assert page_recall.layout_of("exact", 5) == "sink4+window64+exact5"
    assert page_recall.layout_of("attention", 5) == "sink4+window64+pages16x10+stream"
    assert page_recall.layout_of("layer", 5) == "sink4+window64+pages16x10+layer5"
    assert page_recall.layout_of("recent", 5) == "sink4+window64+pages16x10/recent"
    assert page_recall.layout_of("native", 5) == "native"
