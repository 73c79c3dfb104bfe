"""What the studies of remote drafting keep apart, and what is shown of them."""

from __future__ import annotations

import tomllib
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="remote drafters are asked over gRPC")

from benchmarks.show import distributed as show
from benchmarks.studies import lagged_features, namespaces, remote_faults, remote_identity, remote_presets, remote_sweep
from benchmarks.studies.report import ROOT, report_of
from engine.types import Draft


def noted(folder: Path, case: str, fault: str, **values: object) -> None:
    row = {"fault": fault, "deadline_s": 5.0, "same_output": True, "longest_step_s": 5.4, "drafted_steps_after": 65}
    report_of("distributed", "remote-faults", folder).append({"case": case, "rows": [row | values]})


def test_a_fault_measured_with_its_waits_apart_replaces_the_older_entry(tmp_path: Path) -> None:
    assert show.faults(tmp_path) is None
    noted(tmp_path, "truncated", "truncated")
    noted(tmp_path, "too much", "too much", longest_step_s=1.3)
    said = show.faults(tmp_path)
    assert said is not None
    assert "2 of 14 kinds: output unchanged on 2; a whole step of others took at most 5.4 s (truncated)" in said
    noted(tmp_path, "truncated, waits apart", "truncated", longest_wait_s=0.2, drafted_steps_after=0)
    said = show.faults(tmp_path)
    assert said is not None
    assert "a draft was waited for at most 0.2 s (truncated); a whole step of others took at most 1.3 s" in said
    assert said.endswith("deadline 5 s; drafts came again after 1")


def test_every_fault_is_a_case_and_what_a_draft_was_waited_for_is_noted() -> None:
    assert [case.removesuffix(remote_faults.APART) for case in remote_faults.cases()] == [*remote_faults.faults()]
    assert len(set(remote_faults.cases())) == 14

    class Local:
        forwards = 3

        def ask(self, bonus: int, position: int, count: int) -> Draft:
            return Draft((bonus, position), count)

    drafter = remote_faults.ClockedDrafter(Local())
    assert drafter.ask(7, 8, 2).take(0.0).tokens == (7, 8)
    assert (len(drafter.waited_s), drafter.forwards) == (1, 3)


def test_a_point_of_the_sweep_is_paired_prompt_by_prompt_and_a_link_not_asked_over_counts_as_plain(
    tmp_path: Path,
) -> None:
    arms = {("plain", None): 2.0, ("plain again", None): 2.0, ("elsewhere", 5): 1.0, ("elsewhere", 150): 4.0}
    rows = [
        {"prompt": "p", "number": number, "way": way, "trip_ms": trip, "asked": trip == 5, "decode_s": seconds}
        for number in range(3)
        for (way, trip), seconds in arms.items()
    ]
    report_of("distributed", "remote-sweep", tmp_path).append({"case": "40 ms a token, part 0", "rows": rows})
    forced, planned = (show.curve(way, tmp_path) for way in (remote_sweep.FORCED, remote_sweep.PLANNED))
    assert {key: (round(at.value, 3), at.n) for key, at in forced.items()} == {(40, 5): (2.0, 3), (40, 150): (0.5, 3)}
    assert {key: round(at.value, 3) for key, at in planned.items()} == {(40, 5): 2.0, (40, 150): 1.0}
    assert show.speeds(0, (5,), folder=tmp_path) is None
    short = [row | {"plain_s": 3.0} if row["way"] != "plain" else row for row in rows]
    report_of("distributed", "remote-sweep", tmp_path).append({"case": "0 ms a token, part 0", "rows": short})
    assert round(show.curve(folder=tmp_path)[0, 5].value, 3) == 3.0
    assert round(show.curve(remote_sweep.PLANNED, tmp_path)[0, 150].value, 3) == 1.5
    rows = [row | {"number": row["number"] + 3} for row in rows if row["way"] != "plain again"]
    report_of("distributed", "remote-sweep", tmp_path).append({"case": "40 ms a token, part 1", "rows": rows})
    assert {key for key in show.curve(remote_sweep.PLANNED, tmp_path) if key[0]} == {(40, 5)}
    points = Counter(
        (target, trip) for target, trips, _ in map(remote_sweep.points, remote_sweep.cases()) for trip in trips
    )
    asked = set(product(remote_sweep.TARGETS_MS, remote_sweep.TRIPS_MS))
    assert points == dict.fromkeys(asked, remote_sweep.PROMPTS // remote_sweep.PART)


def test_what_was_compared_by_id_is_counted_by_length_and_way(tmp_path: Path) -> None:
    report = report_of("distributed", "remote-identity", tmp_path)
    row = {"same_ids": True, "same_output": True, "way": "loopback", "rows": "exact"}
    report.append({"case": "short, part 0", "rows": [{"prompt": 9, "rows": "exact", "same_output": False}]})
    assert show.identity(tmp_path) is None
    rows = [row | {"prompt": 0}, row | {"prompt": 1, "same_ids": False}, row | {"prompt": 0, "rows": "bfloat16"}]
    report.append({"case": "short, loopback, by id, part 0", "rows": rows})
    report.append({"case": "long, namespaces, by id, part 0", "rows": [row | {"prompt": 0, "way": "namespaces"}]})
    assert show.identity(tmp_path) == (
        "long, namespaces: drafts id by id 1 of 1, output 1 of 1; short, loopback: drafts id by id 1 of 2, output 2 of "
        "2; rows in fewer bits: output 1 of 1"
    )


def test_rows_in_fewer_bits_are_compared_with_those_of_the_same_prompts(tmp_path: Path) -> None:
    assert show.fewer_bits(tmp_path) is None
    report = report_of("distributed", "remote-identity", tmp_path)
    row = {"same_output": True, "way": "loopback", "steps": 20}
    exact = [
        row | {"prompt": number, "rows": "exact", "accepted": 40, "sent": {"rows": 4000}, "same_ids": True}
        for number in range(3)
    ]
    report.append({"case": "short, loopback, by id, part 0", "rows": exact})
    other = {"rows": "float8_e4m3", "accepted": 30, "sent": {"rows": 1000}, "steps": 25, "way": "loopback in 8 bits"}
    eight = [row | other | {"prompt": number} for number in range(2)]
    report.append({"case": "short, loopback in 8 bits, by id, part 0", "rows": eight})
    assert show.fewer_bits(tmp_path) == (
        "float8_e4m3: 60 of 80 tokens accepted on 2 prompts, 50 steps for 40, 25 % of the bytes"
    )


def test_without_root_a_case_of_namespaces_says_so_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError, match="needs root: run the study as root, or leave these cases open"):
        namespaces.FarDrafter([])
    ways = [case.split(", ")[1] for case in remote_identity.cases()]
    assert [ways.count(way) for way in remote_identity.ROWS] == [2 * remote_identity.PARTS] * 3
    assert remote_identity.PART * remote_identity.PARTS >= 60


def test_what_sessions_left_behind_is_said_of_both_ends(tmp_path: Path) -> None:
    assert show.sessions(tmp_path) is None
    ends = {"bytes_before": 0, "bytes_after": 3 << 19, "files_before": 9, "files_after": 8, "threads_before": 4}
    row = ends | {"end": "server", "sessions": 10, "answered": 10, "threads_after": 4}
    full = {"allowed": 64, "answered": 64, "one_more_refused": True, "room_after_one_closed": False}
    report_of("distributed", "remote-sessions", tmp_path).append({"case": "both", "rows": [row, full]})
    assert show.sessions(tmp_path) == (
        "server after 10 of 10 sessions: +1.5 MiB, -1 files, +0 threads; 64 of 64 at once answered, one more refused, "
        "then there was NO room again"
    )


def test_each_preset_is_said_with_its_newest_verdict(tmp_path: Path) -> None:
    assert show.presets(tmp_path) is None
    row = {"preset": "mlx-distributed-spec-decode-demo", "profile": "smoke", "exit": 3, "decision": "invalid"}
    for newer in ({}, {"exit": 0, "decision": "recorded"}):
        report_of("distributed", "remote-presets", tmp_path).append({"case": "a", "rows": [row | newer]})
    assert show.presets(tmp_path) == "spec-decode-demo, smoke: recorded, exit 0"


def test_the_presets_are_those_that_there_are() -> None:
    shipped = {path.stem for path in (ROOT / "bridge" / "presets").glob("mlx-distributed-*.toml")}
    assert set(remote_presets.PRESETS) == shipped
    linked = remote_presets.Linked(ROOT, ROOT, "unix:/a.sock")
    assert linked.environment["KAKEYA_ENDPOINT"] == "unix:/a.sock"
    assert "KAKEYA_ENDPOINT" not in remote_presets.Linked(ROOT, ROOT).environment


@pytest.mark.parametrize("preset", remote_presets.PRESETS)
def test_outputs_are_computed_again_with_the_drafter_that_was_measured(preset: str) -> None:
    commands = tomllib.loads((ROOT / "bridge" / "presets" / f"{preset}.toml").read_text())["commands"]
    named = [
        argv[argv.index("--drafter") + 1] if "--drafter" in argv else None
        for argv in (command["argv"] for command in commands)
        if "--assemble" not in argv
    ]
    assert len(named) == 2
    assert len(set(named)) == 1


def test_acceptance_with_features_in_time_stands_beside_that_a_block_late(tmp_path: Path) -> None:
    assert show.lagging(tmp_path) is None
    assert len(set(lagged_features.cases())) == 12
    kept = report_of("distributed", "lagged-features", tmp_path)
    for lag, mean in ((0, 3.74), (1, 2.95)):
        row = {"drafter": "shipped", "lag_blocks": lag, "depth": 7, "tokens_per_step": mean}
        kept.append({"case": lagged_features.case("shipped", lag, 7), "rows": [row]})
    row = {"drafter": "trained with a lag", "lag_blocks": 1, "depth": 3, "tokens_per_step": 2.8}
    kept.append({"case": lagged_features.case("trained with a lag", 1, 3), "rows": [row]})
    said = show.lagging(tmp_path)
    assert said is not None
    assert said.startswith("3 of 12 cases, ")
    assert "trained with a lag, depth 3: ? → 2.80; shipped, depth 7: 3.74 → 2.95" in said
