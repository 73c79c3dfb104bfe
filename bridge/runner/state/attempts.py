"""Count how often this host has run the same thing, and keep its reports: the best of ten reruns is no evidence.

From the second attempt on only the estimate over all of them may be quoted, and a ratio that was chosen from several
questions is corrected for it. Knows digests, ids, times and files.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from bridge import strictjson
from bridge.errors import JournalError
from bridge.launches.attempts import LOOK_DAYS
from bridge.launches.families import Question, choose
from bridge.limits import ATTEMPTS_LISTED_COUNT, REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.records import Attempt, JobSpec, ModelDigest, RunRecord
from bridge.records.base import Moment, Record, RunId, Sha256
from bridge.records.jobspec import ATTACHMENTS
from bridge.runner.state.journal import append_line
from bridge.system.clock import parse_rfc3339, rfc3339
from bridge.system.durable import write_atomically

_PREFIX = "reports/"
RECORD_NAME, SPEC_NAME, VERDICT_NAME = (
    "/run.json",
    "/spec.json",
    "/verdict.json",
)  # as the gate looks for them; no report has an absolute path


class Look(Record):
    """What a number that might be quoted is of, by digest: what it could be chosen within, its cell, its version."""

    family: Sha256
    cell: Sha256
    version: Sha256

    def question(self) -> Question:
        """Return it as what is asked of the primary metric: one preset has one."""
        return Question(self.family, "", "", self.cell, self.version)


class _Line(Record):
    """A run that was counted; `look` where a number of it might be quoted."""

    key: Sha256
    id: RunId
    time: Moment
    look: Look | None
    confirms: RunId | None


def attempt_key(spec: JobSpec, code_identity: str, host: str, models: Sequence[ModelDigest]) -> str:
    """Return sha256 over (preset, params, profile, code, host, models).

    Another model is another question, and so is a preset that its owner changed: launches of two plans are in no pool.
    """
    asked = [spec.preset, spec.preset_digest, spec.params, spec.profile]
    value = [*asked, code_identity, host, [model.sha256 for model in models]]
    return hashlib.sha256(strictjson.encode(value)).hexdigest()


def look_of(spec: JobSpec, code_identity: str, host: str, models: Sequence[ModelDigest]) -> Look:
    """Return what a run's numbers could be chosen within: one preset against one base on one host, over its parameters.

    Edits, commits, models and plans follow each other in time; they are versions.
    """
    parts = (
        [spec.preset, spec.profile, spec.base, host],
        [spec.params],
        [code_identity, spec.preset_digest, [model.sha256 for model in models]],
    )
    family, cell, version = (hashlib.sha256(strictjson.encode(part)).hexdigest() for part in parts)
    return Look(family=family, cell=cell, version=version)


class Attempts:
    """A durable counter; an id counts once however often it is asked."""

    def __init__(self, path: Path) -> None:
        """Read what was counted; a torn last line is ignored.

        Raises:
            JournalError: a line is not this file's.
        """
        self._path = path
        self._lock = threading.Lock()
        self._lines: list[_Line] = []
        if not path.exists():
            return
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(path, whole)
        for number, raw in enumerate(data[:whole].splitlines()):
            try:
                self._lines.append(_Line.parse(raw))
            except ValueError as error:
                raise JournalError(f"{path}, line {number + 1}: {str(error).splitlines()[0]}") from error

    def count(
        self, key: str, run_id: str, now: dt.datetime, *, look: Look | None = None, confirms: str | None = None
    ) -> Attempt:
        """Count a run durably and return which attempt of the last 30 days it is.

        Runs that confirm are attempts of their own: what they are to confirm is not pooled with them.

        Args:
            key: the question.
            run_id: the run.
            now: when it is counted, before it measures anything.
            look: what its number could be chosen within; None where none might be quoted.
            confirms: the earlier run of this question that it was begun to confirm, or None.

        Raises:
            JournalError: it could not be written.
        """
        with self._lock:
            known = (place for place, line in enumerate(self._lines) if (line.key, line.id) == (key, run_id))
            place = next(known, len(self._lines))
            if place == len(self._lines):
                line = _Line(key=key, id=run_id, time=rfc3339(now), look=look, confirms=confirms)
                append_line(self._path, line.canonical())
                self._lines.append(line)
            line = self._lines[place]
            since = parse_rfc3339(line.time) - dt.timedelta(days=LOOK_DAYS)
            recent = [one for one in self._lines[:place] if parse_rfc3339(one.time) > since]
        confirming = line.confirms is not None
        same = [one.id for one in recent if one.key == key and (one.confirms is not None) == confirming]
        listed = tuple(same[-ATTEMPTS_LISTED_COUNT:])
        attempt = Attempt(key=key, number=len(same) + 1, earlier=listed, confirms=line.confirms)
        if line.look is None:
            return attempt
        questions = [earlier.look.question() for earlier in recent if earlier.look is not None]
        return attempt.evolve(looks=choose(questions, line.look.question(), confirms=confirming).looks)

    def counted(self, key: str, run_id: str) -> bool:
        """Return whether a run of this question was counted here."""
        with self._lock:
            return any(line.key == key and line.id == run_id for line in self._lines)


def save_reports(folder: Path, run_id: str, files: Mapping[str, bytes]) -> None:
    """Store the reports of a result tree, and its record where it holds what is pooled: pairs, or confirmed numbers.

    Beside the reports of an owner's own program lie its record and job spec: which repeats were asked for, with which
    seeds, and which of them ended. The verdict goes with all of them: an attempt that lost a premise is pooled with no
    later one as if it had not. Of the engine's own kinds a report that was declared and is whole is kept: parts
    of one, or its first half, are what a run leaves that was cancelled in the middle.
    """
    left = {path.removeprefix(_PREFIX): data for path, data in files.items() if path.startswith(_PREFIX)}
    record, spec = files.get("run.json"), files.get("spec.json")
    asked = None if spec is None else JobSpec.parse(spec, max_bytes=REPORT_MAX_BYTES)
    own = asked is not None and asked.workload is not None
    if asked is not None and not own:
        left = _readable(left, asked)
    reports = {path: data.hex() for path, data in left.items()}
    kept = bool(own and reports) or (
        record is not None and _is_pooled(RunRecord.parse(record, max_bytes=REPORT_MAX_BYTES))
    )
    if record is not None and kept:
        reports[RECORD_NAME] = record.hex()
    if spec is not None and own and kept:
        reports[SPEC_NAME] = spec.hex()
    if reports and "verdict.json" in files:
        reports[VERDICT_NAME] = files["verdict.json"].hex()
    if reports:
        write_atomically(folder / f"{run_id}.json.gz", gzip.compress(json.dumps(reports).encode(), 1, mtime=0))


def _readable(left: Mapping[str, bytes], asked: JobSpec) -> dict[str, bytes]:
    """Return what was written to its end of the declared files; whether a gate lets it pass is the gate's business."""
    declared = {output.path for output in asked.outputs if output.kind not in ATTACHMENTS}
    return {path: data for path, data in left.items() if path in declared and _is_json(data)}


def _is_json(data: bytes) -> bool:
    try:
        strictjson.decode(data, max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
    except strictjson.StrictJsonError:
        return False
    return True


def _is_pooled(record: RunRecord) -> bool:
    """Return whether a later attempt's verdict needs the record itself."""
    return any(command.answer is not None for command in record.commands) or _finished_a_pair(record)


def _finished_a_pair(record: RunRecord) -> bool:
    """Return whether a launch that counts has a sample that both arms finished."""
    for launch in record.launches:
        ended = {(turn.sample, turn.arm) for turn in launch.turns if turn.over}
        if launch.number > 0 and len({sample for sample, _ in ended}) < len(ended):
            return True
    return False


def unreported(folder: Path, run_ids: Sequence[str]) -> tuple[str, ...]:
    """Return which of these runs left nothing to pool: cancelled before a pair was finished, or still going on."""
    return tuple(run_id for run_id in run_ids if not (folder / f"{run_id}.json.gz").exists())


def load_reports(folder: Path, run_ids: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """Return the reports of the latest of these runs by run id; a run that left none is absent."""
    found: dict[str, dict[str, bytes]] = {}
    for run_id in run_ids[-ATTEMPTS_LISTED_COUNT:]:
        try:
            value = json.loads(gzip.decompress((folder / f"{run_id}.json.gz").read_bytes()))
        except FileNotFoundError:
            continue
        found[run_id] = {path: bytes.fromhex(data) for path, data in value.items()}
    return found
