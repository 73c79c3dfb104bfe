"""Read report files and result folders from disk for the gate, which itself does no input or output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bridge import strictjson
from bridge.client.clone.packed import SUFFIX, is_packed
from bridge.client.clone.store import read_tree
from bridge.client.connection.pins import Pins, answer_about
from bridge.client.evidence.judged import said_otherwise
from bridge.client.run.result import read_result
from bridge.errors import IntegrityError, UsageError
from bridge.gate.judging import BARE_ID, judge, judge_bytes
from bridge.limits import REPORT_MAX_BYTES
from bridge.records.run import RunRecord
from bridge.records.verdict import Verdict
from bridge.trust.judgement import TrustAnswer
from bridge.trust.verifier import verify_tree


@dataclass(frozen=True)
class Judged:
    """One path and its verdict by the gate here.

    Attributes:
        problems: those of the tree itself.
        otherwise: what the verdict in the tree says where the gate here says something else.
        answer: whether the runner of a result may say what it says; None for a bare report.
    """

    path: Path
    verdict: Verdict
    record: RunRecord | None
    problems: tuple[str, ...] = ()
    otherwise: str | None = None
    answer: TrustAnswer | None = None


@dataclass(frozen=True)
class NoReport:
    """A file beside results that does not call itself a report, so that nothing of it can be quoted."""

    path: Path
    reason: str


def judge_paths(paths: list[Path], trusted: Callable[[Path], Pins]) -> Iterator[Judged | NoReport]:
    """Judge every report file and every result folder, in order; a file that is named is always judged.

    Args:
        paths: files and folders.
        trusted: returns the keys for the result in a folder; one that they signed is judged as on its host, any other
            as unattested.

    Raises:
        UsageError: a path is neither, or nothing is there.
    """
    for path in paths:
        if is_packed(path) or (path / "manifest.json").is_file():
            yield _folder(path, trusted(path))
        elif path.is_file():
            yield _bare(path)
        elif path.is_dir():
            yield from _inside(path, trusted)
        else:
            what = "is no file or folder" if os.path.lexists(path) else "is not there"
            raise UsageError(f"{path} {what}; expected a report file or a result folder")


def _inside(folder: Path, trusted: Callable[[Path], Pins]) -> Iterator[Judged | NoReport]:
    unpacked = [manifest.parent for manifest in folder.glob("*/manifest.json")]
    packed = [
        *folder.glob(f"*{SUFFIX}"),
        *(path for path in folder.glob(f"*/*{SUFFIX}") if path.parent not in unpacked),
    ]
    results = sorted([*unpacked, *packed])
    files = {path: _is_report(path) for path in sorted(folder.glob("*.json")) if path.is_file()}
    if not results and not any(files.values()):
        raise UsageError(f"{folder} holds no report and no result")
    yield from (_folder(result, trusted(result)) for result in results)
    yield from (_bare(path) if is_report else _other(path) for path, is_report in files.items())


def _is_report(path: Path) -> bool:
    """Return whether a file claims to be a report; what cannot be read is judged, and refused, as one."""
    try:
        value = strictjson.decode(_bounded(path), max_bytes=REPORT_MAX_BYTES)
    except ValueError:
        return True
    return not isinstance(value, dict) or not {"kind", "schema_version", "arms", "claims"}.isdisjoint(value)


def _other(path: Path) -> NoReport:
    return NoReport(path, "it has no kind, schema_version, arms or claims: no report, nothing to quote")


def _bare(path: Path) -> Judged:
    return Judged(path, judge(BARE_ID, {path.name: _bounded(path)}, None, None, authority="unattested"), None)


def _bounded(path: Path) -> bytes:
    """Return a file's bytes, of one that is too large for a report only so many that the gate says so."""
    with path.open("rb") as file:
        return file.read(REPORT_MAX_BYTES + 1)


def _folder(path: Path, trusted: Pins) -> Judged:
    """Judge a result folder: digests first, so that an edited report is named as one."""
    try:
        tree = read_tree(path)
    except IntegrityError as error:  # it is refused and stops no other
        return Judged(path, judge_bytes(BARE_ID, {}, None, None), None, (error.message.removeprefix(f"{path} "),))
    problems = tuple(str(problem) for problem in verify_tree(tree.files))
    reports = {name.removeprefix("reports/"): data for name, data in tree.files.items() if name.startswith("reports/")}
    try:
        result = read_result(tree)
    except IntegrityError as error:
        problems = (*problems, error.message)
        verdict = judge_bytes(BARE_ID, reports, tree.files.get("run.json"), tree.files.get("spec.json"))
        return Judged(path, verdict, None, problems)
    answer = TrustAnswer("altered", problems[0]) if problems else answer_about(tree.files, trusted)
    if answer.refused and not problems:
        problems = (answer.text,)
    verdict = result.judged(signed=answer.signed and not problems)
    return Judged(path, verdict, result.record, problems, said_otherwise(result, verdict), answer)
