"""Parts of launches become one report, or one clear error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import UsageError
from engine.reports import (
    Arm,
    Counters,
    Fallback,
    Memory,
    Report,
    RunContext,
    Sample,
    Stages,
    token_digest,
    write_report,
)
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.reports.summary import summarise


def sample(launch: int, index: int, arm: str, decode_s: float, is_warmup: bool = False, **values: Any) -> Sample:
    drafting = arm == "speculative"
    made = Sample(
        id=f"{launch}/{index}/{arm}/p{launch}",
        prompt_id=f"p{launch}",
        prompt_digest="0" * 64,
        kind="structured",
        launch=launch,
        order_index=index,
        is_warmup=is_warmup,
        prompt_tokens=3,
        output_tokens=4,
        tokens=(1, 2, 3, 4),
        token_digest=token_digest((1, 2, 3, 4)),
        text="x",
        stop_reason="budget",
        stages=Stages(0.1, decode_s, 0.1 + decode_s),
        counters=Counters(2, 2, 3, 1, 2, 3, 0) if drafting else Counters(4, 0, 0, 0, 3, 4, 0),
        memory=Memory(10, 20, 5 if drafting else None, 30),
        accepted_per_step=(1, 0) if drafting else None,
        drafted_per_step=(2, 1) if drafting else None,
    )
    return replace(made, **values)


def part(launch: int, seconds: tuple[float, float, float] = (2.0, 3.0, 1.0), **config: object) -> Report:
    names = [("autoregressive", "baseline"), ("autoregressive_again", "control"), ("speculative", "candidate")]
    arms = tuple(
        Arm(name, role, "m:f", (sample(launch, index, name, seconds[index]),))
        for index, (name, role) in enumerate(names)
    )
    fallback = Fallback("speculative", "drafter", f"{launch}/2/speculative/p{launch}", "no match", 3)
    return Report(
        kind="code_throughput",
        config={"seed": 0, **config},
        environment={"backend": "none"},
        started_at=f"2026-01-01T00:00:0{launch}.000Z",
        ended_at=f"2026-01-01T00:00:0{launch + 1}.000Z",
        wall_s=0.9,
        arms=arms,
        fallbacks=(fallback,),
    )


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext.from_environment({"KAKEYA_OUT": str(tmp_path)})


def test_a_part_survives_being_written_and_read(context: RunContext) -> None:
    write_report(part(0), context, part_name(0))
    assert merge(read_parts(context.out)) == part(0)


def test_launches_are_joined_in_order(context: RunContext) -> None:
    for launch in (1, 0):
        write_report(part(launch), context, part_name(launch))
    joined = merge(read_parts(context.out))
    assert [arm.name for arm in joined.arms] == ["autoregressive", "autoregressive_again", "speculative"]
    assert [item.launch for item in joined.arms[2].samples] == [0, 1]
    assert (joined.started_at, joined.ended_at) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:02.000Z")
    assert joined.wall_s == pytest.approx(1.8)
    assert len(joined.fallbacks) == 2
    remove_parts(context.out)
    assert list(context.out.iterdir()) == []


def test_a_missing_launch_is_an_error(context: RunContext) -> None:
    with pytest.raises(UsageError, match=r"holds launches \[\]"):
        read_parts(context.out)
    for launch in (0, 2):
        write_report(part(launch), context, part_name(launch))
    with pytest.raises(UsageError, match=r"\[0, 2\]; expected 0, 1"):
        read_parts(context.out)


@pytest.mark.parametrize("text", ["{", "[]", "{}", "\udcff"])
def test_what_is_no_part_is_an_error(context: RunContext, text: str) -> None:
    path = context.out / part_name(0)
    path.parent.mkdir()
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"launch-0\.json"):
        read_parts(context.out)
    path.rename(path.with_name("launch-x.json"))
    with pytest.raises(UsageError, match=r"holds launches \[x\]"):
        read_parts(context.out)


def test_launches_of_another_workload_are_not_joined(context: RunContext) -> None:
    write_report(part(0), context, part_name(0))
    assert read_parts(context.out, {"code_throughput"})
    with pytest.raises(UsageError, match="is a launch of 'code_throughput'; expected bounded_kv"):
        read_parts(context.out, {"bounded_kv"})


def test_launches_under_different_settings_are_not_joined(context: RunContext) -> None:
    write_report(part(0), context, part_name(0))
    write_report(part(1, max_new_tokens=5), context, part_name(1))
    with pytest.raises(UsageError, match="differ in 'config'"):
        merge(read_parts(context.out))


def test_the_summary_pools_baseline_and_control_and_leaves_warm_ups_out() -> None:
    report = part(0)
    warm = sample(0, 9, "speculative", 100.0, is_warmup=True)
    candidate = replace(report.arms[2], samples=(*report.arms[2].samples, warm))
    summary = summarise(replace(report, arms=(*report.arms[:2], candidate)))
    assert summary.ratio == pytest.approx(2.5)
    assert (summary.identical, summary.compared) == (1, 1)
    assert [arm.acceptance_length for arm in summary.arms] == [0.75, 0.75, 1.5]
    assert [arm.tokens_per_s for arm in summary.arms] == pytest.approx([1.5, 1.0, 3.0])


def test_a_prompt_of_several_launches_is_counted_once_and_identical_where_all_its_outputs_are() -> None:
    report = part(0)
    first = report.arms[2].samples[0]
    for tokens, identical in ((first.tokens, 1), ((1, 2), 0)):
        twice = replace(report.arms[2], samples=(first, replace(first, id="1/0/speculative/p", tokens=tokens)))
        summary = summarise(replace(report, arms=(*report.arms[:2], twice)))
        assert (summary.identical, summary.compared) == (identical, 1)


def test_different_tokens_are_counted_as_such() -> None:
    report = part(0)
    other = replace(report.arms[2], samples=(replace(report.arms[2].samples[0], tokens=(1, 2)),))
    assert summarise(replace(report, arms=(*report.arms[:2], other))).identical == 0


def test_a_baseline_alone_has_no_ratio() -> None:
    report = part(0)
    assert summarise(replace(report, arms=report.arms[:1])).ratio is None
