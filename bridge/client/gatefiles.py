"""Read report files and result folders from disk for the gate, which itself does no input or output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bridge.client.result import read_result
from bridge.client.store import read_folder
from bridge.errors import IntegrityError, UsageError
from bridge.gate import judge, judge_bytes
from bridge.gate.judging import BARE_ID
from bridge.limits import REPORT_MAX_BYTES
from bridge.publish import verify_tree
from bridge.records import RunRecord, Verdict


@dataclass(frozen=True)
class Judged:
    """One path and what the gate here says of it; `problems` are those of the tree itself."""

    path: Path
    verdict: Verdict
    record: RunRecord | None
    problems: tuple[str, ...] = ()


def judge_paths(paths: list[Path]) -> Iterator[Judged]:
    """Judge every report file and every result folder, in order.

    Raises:
        UsageError: a path is neither, or nothing is there.
    """
    for path in paths:
        if path.is_file():
            yield _bare(path)
        elif (path / "manifest.json").is_file():
            yield _folder(path)
        elif path.is_dir():
            found = sorted(path.glob("*/manifest.json"))
            files = sorted(one for one in path.glob("*.json") if one.is_file())
            if not found and not files:
                raise UsageError(f"{path} holds no report and no result folder")
            yield from (_folder(one.parent) for one in found)
            yield from (_bare(one) for one in files)
        else:
            raise UsageError(f"there is no {path}")


def _bare(path: Path) -> Judged:
    if path.stat().st_size > REPORT_MAX_BYTES:
        raise UsageError(f"{path}: {path.stat().st_size} bytes; a report has at most {REPORT_MAX_BYTES}")
    return Judged(path, judge(BARE_ID, {path.name: path.read_bytes()}, None, None, authority="unattested"), None)


def _folder(path: Path) -> Judged:
    """Judge a result folder: digests first, so that nobody is misled by an edited report."""
    tree = read_folder(path)
    problems = tuple(str(problem) for problem in verify_tree(tree.files))
    reports = {name.removeprefix("reports/"): data for name, data in tree.files.items() if name.startswith("reports/")}
    try:
        result = read_result(tree)
    except IntegrityError as error:
        problems = (*problems, error.message)
        verdict = judge_bytes(BARE_ID, reports, tree.files.get("run.json"), tree.files.get("spec.json"))
        return Judged(path, verdict, None, problems)
    # Nobody here saw the run: without a verified attestation the best it can be is valid_not_citable.
    verdict = judge_bytes(result.id, reports, tree.files.get("run.json"), tree.files.get("spec.json"))
    return Judged(path, verdict, result.record, problems)
