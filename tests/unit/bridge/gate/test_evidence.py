"""What is committed as evidence is judged on every change, and a changed result fails."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.cli.mac.program import Surroundings, main
from bridge.client.clone.packed import SUFFIX, read_packed
from bridge.client.connection.pins import Pins
from bridge.client.evidence.gate_files import Judged, NoReport, judge_paths
from bridge.system.clock import SystemClock
from tests.support.committed import SMOKE, unpacked

ROOT = Path(__file__).parents[4]
EVIDENCE = ROOT / "docs" / "evidence"


def check(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    around = Surroundings(out, err, {}, ROOT, SystemClock())
    return main(["gate", "check", *arguments], around), out.getvalue(), err.getvalue()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a folder with a copy of one committed result."""
    unpacked(SMOKE, tmp_path / "evidence" / "smoke")
    return tmp_path / "evidence"


def test_every_committed_result_is_valid_here_and_now() -> None:
    code, out, err = check("docs/evidence")
    assert code == 0, out + err
    assert len(list(EVIDENCE.rglob("*.tar.xz"))) == out.count("path  ") >= 1


def test_every_committed_number_outside_a_result_says_which_command_made_it() -> None:
    page = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    others = [
        entry.path.name for entry in judge_paths([EVIDENCE], lambda _folder: Pins()) if isinstance(entry, NoReport)
    ]
    assert [name for name in others if f"[{name}]({name})" not in page] == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("reports/report.json", b'"decode_s": 0.', b'"decode_s": 1.'),
        ("run.json", b'"reason":"passed"', b'"reason":"failed"'),
        ("spec.json", b'"profile":"smoke"', b'"profile":"claim"'),
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
    entries = list(judge_paths([copied], lambda _folder: Pins()))
    assert {
        entry.path.name: entry.verdict.decision
        for entry in entries
        if isinstance(entry, Judged) and entry.path.is_file()
    } == {
        "broken.json": "rejected",
        "loose.json": "rejected",
    }
    assert [entry.path.name for entry in entries if isinstance(entry, NoReport)] == ["study.json"]
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
    entries = [entry for entry in judge_paths([copied], lambda _folder: Pins()) if isinstance(entry, Judged)]
    refused = {entry.path.name for entry in entries if entry.problems or entry.verdict.decision == "rejected"}
    assert refused == {"a-link", "b-manifest", "c-record", "d-huge", "huge.json", "deep.json", "nan.json"}
    assert [entry.path for entry in entries if entry.path.name not in refused] == [source]
    code, _, err = check(str(copied))
    assert code == 1
    assert "Traceback" not in err


def test_packed_results_of_a_folder_in_it_are_judged_too(tmp_path: Path) -> None:
    (tmp_path / "sittings").mkdir()
    for name in ("first", "second"):
        shutil.copy(SMOKE, tmp_path / "sittings" / f"{name}{SUFFIX}")
    entries = list(judge_paths([tmp_path], lambda _folder: Pins()))
    assert [entry.path.name for entry in entries] == [f"first{SUFFIX}", f"second{SUFFIX}"]


def test_a_folder_with_nothing_to_judge_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"rows": []}')
    assert check(str(tmp_path))[0] == 2


def test_a_named_file_is_always_judged(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"rows": []}')
    assert check(str(tmp_path / "study.json"))[0] == 1


def test_what_ci_runs_judges_the_committed_evidence() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "gate check docs/evidence\n" in makefile
    (check_line,) = [line for line in makefile.splitlines() if line.startswith("check:")]
    assert "evidence" in check_line.split("##")[0].split()
    assert "run: make evidence" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


NAMES_IN_ROOTS = (b"ada", b"owner", b"user")
IN_ROOTS = {b"/opt/python3.11", *(b"/home/" + name for name in NAMES_IN_ROOTS)} | {
    b"/srv/" + name + b".git" for name in NAMES_IN_ROOTS
}
"""Folders of the bare roots that the campaign makes, on whatever machine."""
_FOLDER = re.compile(rb"(?<![\w${}.-])/(?:tmp|var/tmp|root|home|Users|srv|opt)/[\w.-]+")


def committed_files() -> Iterator[tuple[str, bytes]]:
    for path in sorted(path for path in EVIDENCE.rglob("*") if path.is_file()):
        if path.name.endswith(SUFFIX):
            yield from ((f"{path.name}:{name}", data) for name, data in read_packed(path).files.items())
        else:
            yield path.relative_to(EVIDENCE).as_posix(), path.read_bytes()


def test_no_committed_result_names_a_folder_of_the_machine_that_made_it() -> None:
    named = {name: places for name, data in committed_files() if (places := set(_FOLDER.findall(data)) - IN_ROOTS)}
    assert named == {}
    assert _FOLDER.search(b'"work":"/tmp/kakeya-x/runs/1"')


def test_no_page_names_the_host_of_a_registry_or_hub() -> None:
    hosts = re.compile(r"pypi\.org|pythonhosted\.org|huggingface\.co|\bhf\.co\b|npmjs\.(?:com|org)|ghcr\.io")
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    pages = [name for name in tracked.stdout.splitlines() if (ROOT / name).is_file()]
    assert [name for name in pages if hosts.search((ROOT / name).read_text("utf-8"))] == []
    assert len(pages) > 50
