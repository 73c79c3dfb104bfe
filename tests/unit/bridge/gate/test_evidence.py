"""What is committed as evidence is judged on every change, and a changed result fails."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.mac.program import Surroundings, main
from bridge.client.connection.pins import Pins
from bridge.client.evidence.gate_files import Judged, NoReport, judge_paths
from bridge.system.clock import SystemClock

ROOT = Path(__file__).parents[4]
EVIDENCE = ROOT / "docs" / "evidence"


def check(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    around = Surroundings(out, err, {}, ROOT, SystemClock())
    return main(["gate", "check", *arguments], around), out.getvalue(), err.getvalue()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a folder with a copy of one committed result."""
    source = min(EVIDENCE.glob("*/manifest.json")).parent
    shutil.copytree(source, tmp_path / "evidence" / source.name)
    return tmp_path / "evidence"


def test_every_committed_result_is_valid_here_and_now() -> None:
    code, out, err = check("docs/evidence")
    assert code == 0, out + err
    assert len(list(EVIDENCE.glob("*/manifest.json"))) == out.count("path  ")


def _signed_rows() -> dict[str, dict[str, Any]]:
    """Return what each study last said of a case whose result it kept, with the key that signed it, by the run's id."""
    last: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sorted((EVIDENCE / "studies").glob("*/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if '"pin"' in line:
                entry = json.loads(line)
                last[path.name, entry["case"]] = entry["rows"]
    return {row["id"]: row for rows in last.values() for row in rows if "pin" in row}


SIGNED = _signed_rows()
KEPT = {
    json.loads((path.parent / "verdict.json").read_bytes())["id"]: path.parent
    for path in sorted(EVIDENCE.glob("*/*/manifest.json"))
}


def test_every_result_that_a_study_kept_has_its_row_and_every_such_row_its_result() -> None:
    assert SIGNED.keys() == KEPT.keys()
    assert len(KEPT) >= 2


@pytest.mark.parametrize("name", sorted(KEPT.keys() & SIGNED.keys()))
def test_every_result_that_a_study_kept_is_still_what_its_report_says(name: str) -> None:
    row = SIGNED[name]
    code, out, err = check("--json", "--runner-key", row["pin"], str(KEPT[name]))
    assert code == (1 if row["decision"] == "rejected" else 0), out + err
    (judged,) = json.loads(out)["data"]
    assert judged["verdict"]["decision"] == row["decision"]
    claims = {claim["id"]: claim["decision"] for claim in judged["verdict"]["claims"]}
    assert claims == {claim: said["decision"] for claim, said in row["claims"].items()}


def test_every_committed_number_outside_a_result_says_which_command_made_it() -> None:
    page = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    others = [one.path.name for one in judge_paths([EVIDENCE], lambda _folder: Pins()) if isinstance(one, NoReport)]
    assert [name for name in others if f"[{name}]({name})" not in page] == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("reports/report.json", b'"decode_s": 0.', b'"decode_s": 1.'),
        ("run.json", b'"reason":"passed"', b'"reason":"failed"'),
        ("spec.json", b'"profile":"claim"', b'"profile":"smoke"'),
        ("verdict.json", b"valid", b"evidence"),
    ],
)
def test_a_changed_result_fails(copied: Path, file: str, old: bytes, new: bytes) -> None:
    (path,) = copied.glob(f"*/{file}")
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    code, _, err = check(str(copied))
    assert code == 1
    assert file in err


def test_a_report_that_is_gone_fails(copied: Path) -> None:
    next(copied.glob("*/reports/report.json")).unlink()
    assert check(str(copied))[0] == 1


def test_a_bare_report_beside_results_is_judged(copied: Path) -> None:
    (copied / "loose.json").write_text('{"kind": "code_throughput", "headline": 9.9}')
    (copied / "broken.json").write_text("{")
    (copied / "study.json").write_text('{"command": "python -m benchmarks", "rows": [1.5]}')
    found = list(judge_paths([copied], lambda _folder: Pins()))
    assert {one.path.name: one.verdict.decision for one in found if isinstance(one, Judged) and one.path.is_file()} == {
        "broken.json": "rejected",
        "loose.json": "rejected",
    }
    assert [one.path.name for one in found if isinstance(one, NoReport)] == ["study.json"]
    assert check(str(copied))[0] == 1


def test_one_bad_file_or_folder_never_stops_the_others(copied: Path) -> None:
    (source,) = copied.iterdir()
    for name in ("a-link", "b-manifest", "c-record", "d-huge"):
        shutil.copytree(source, copied / name)
    (copied / "a-link" / "reports" / "more.json").symlink_to("/etc/hostname")
    (copied / "b-manifest" / "manifest.json").write_text("[" * 100_000)
    (copied / "c-record" / "run.json").write_bytes(b"\xff")
    with (copied / "d-huge" / "reports" / "huge.json").open("wb") as file:
        file.truncate(100 << 20)
    with (copied / "huge.json").open("wb") as file:
        file.truncate(100 << 20)
    (copied / "deep.json").write_text("[" * 1_000_000)
    (copied / "nan.json").write_text('{"kind": NaN, "wall_s": Infinity}')
    found = [one for one in judge_paths([copied], lambda _folder: Pins()) if isinstance(one, Judged)]
    refused = {one.path.name for one in found if one.problems or one.verdict.decision == "rejected"}
    assert refused == {"a-link", "b-manifest", "c-record", "d-huge", "huge.json", "deep.json", "nan.json"}
    assert [one.path for one in found if one.path.name not in refused] == [source]
    code, _, err = check(str(copied))
    assert code == 1
    assert "Traceback" not in err


def test_a_folder_with_nothing_to_judge_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"rows": []}')
    assert check(str(tmp_path))[0] == 2


def test_a_named_file_is_always_judged(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"rows": []}')
    assert check(str(tmp_path / "study.json"))[0] == 1


def test_what_ci_runs_judges_the_committed_evidence() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    folders = " ".join(f"docs/evidence/{name}" for name in ("claim-runs", "bounded-presets", "remote-presets"))
    assert f"gate check docs/evidence {folders}\n" in makefile
    (check_line,) = [line for line in makefile.splitlines() if line.startswith("check:")]
    assert "evidence" in check_line.split("##")[0].split()
    assert "run: make evidence" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
