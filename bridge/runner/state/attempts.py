"""Count how often this host has run the same thing, and keep its reports: the best of ten reruns is no evidence.

From the second attempt on only the estimate over all of them may be quoted, and a ratio that was chosen from several
questions is corrected for it. Knows digests, ids, times and files.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge import strictjson
from bridge.launches.attempts import LOOK_DAYS
from bridge.launches.families import Question, choose
from bridge.limits import ATTEMPTS_LISTED_COUNT, REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.records.jobspec import ATTACHMENTS, JobSpec
from bridge.records.run import Attempt, ModelDigest, RunRecord
from bridge.runner.state.database import StateDatabase
from bridge.system.clock import parse_rfc3339, rfc3339
from bridge.system.durable import write_atomically

_PREFIX = "reports/"
_INSERT = (
    "INSERT OR IGNORE INTO attempts (key, run, time, confirms, family, cell, version) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
RECORD_NAME, SPEC_NAME, VERDICT_NAME = (
    "/run.json",
    "/spec.json",
    "/verdict.json",
)  # as the gate looks for them; no report has an absolute path


@dataclass(frozen=True)
class Look:
    """What a number that might be quoted is of, by digest: what it could be chosen within, its cell, its version.

    ``cells`` of its family were asked for at once: the first that is measured could be the best of all of them.
    """

    family: str
    cell: str
    version: str
    cells: int = 1

    def question(self) -> Question:
        """Return it as what is asked of the primary metric: one preset has one."""
        return Question(self.family, "", "", self.cell, self.version)


@dataclass(frozen=True)
class CountedRun:
    """A run that was counted for a question.

    Attributes:
        key: the question.
        run: the run.
        time: when it was counted.
        look: what a number of it that might be quoted could be chosen within; None where none might be.
        confirms: the run that it was begun to confirm, or None.
    """

    key: str
    run: str
    time: str
    look: Look | None
    confirms: str | None


def attempt_key(spec: JobSpec, code_identity: str, host: str, models: Sequence[ModelDigest]) -> str:
    """Return sha256 over (preset, params, profile, code, host, models).

    Another model is another question, and so is a preset that its owner changed: launches of two plans are in no pool.
    Sittings are numbered apart from other claims, so that one which is missing among them shows.
    """
    asked = [spec.preset, spec.preset_digest, spec.params, profile_of(spec)]
    value = [*asked, code_identity, host, [model.sha256 for model in models]]
    return hashlib.sha256(strictjson.encode(value)).hexdigest()


def profile_of(spec: JobSpec) -> str:
    """Return what was asked for: a profile, a sitting, a word or a load, whose launches are in no pool with others."""
    word, measured = spec.asked_word, _measured_as(spec)
    if word is not None:
        return f"{measured} {word.word} {word.margin:g}"
    return f"{measured} load drawn" if spec.draws_load else measured


def _measured_as(spec: JobSpec) -> str:
    """Return its profile, whatever was asked of its launches besides."""
    return spec.profile if spec.sitting is None else "standing"


def may_be_quoted(spec: JobSpec) -> bool:
    """Return whether a number of a run of this job might be quoted, so that it counts as one to choose from."""
    of_claim = spec.profile == "claim" or spec.workload is not None
    return spec.primary_claim is not None and of_claim and spec.asked_word is None


def look_of(spec: JobSpec, code_identity: str, host: str, models: Sequence[ModelDigest]) -> Look:
    """Return what a run's numbers could be chosen within: one preset against one base on one host, over its parameters.

    Edits, commits, models and plans follow each other in time; they are versions. All sittings of a set are one cell,
    and another set of the same question is another one: whoever begins anew has looked once more. So has who draws a
    load: of the two ratios either could be shown.
    """
    set_id = None if spec.sitting is None else spec.sitting.id
    besides = [*([] if set_id is None else [set_id]), *(["load drawn"] if spec.draws_load else [])]
    parts = (
        [spec.preset, _measured_as(spec), spec.base, host],
        [spec.params, *besides],
        [code_identity, spec.preset_digest, [model.sha256 for model in models]],
    )
    family, cell, version = (hashlib.sha256(strictjson.encode(part)).hexdigest() for part in parts)
    return Look(family=family, cell=cell, version=version)


class Attempts:
    """A durable counter; a run counts once for a question however often it is asked."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def count(
        self, key: str, run_id: str, now: dt.datetime, *, look: Look | None = None, confirms: str | None = None
    ) -> Attempt:
        """Count a run durably and return which attempt of the last 30 days it is.

        Runs that confirm are attempts of their own, and looks at one another: what they are to confirm is not pooled
        with them, and was said before they began.

        Args:
            key: the question.
            run_id: the run.
            now: when it is counted, before it measures anything.
            look: what its number could be chosen within; None where none might be quoted.
            confirms: the earlier run of this question that it was begun to confirm, or None.

        Raises:
            JournalError: it could not be written.
        """
        with self._database.write() as rows:
            rows.execute(_INSERT, _row(CountedRun(key, run_id, rfc3339(now), look, confirms)))
            place, counted, confirms, *own = rows.execute(
                "SELECT place, time, confirms, family, cell, version FROM attempts WHERE key = ? AND run = ?",
                (key, run_id),
            ).fetchone()
            since = rfc3339(parse_rfc3339(counted) - dt.timedelta(days=LOOK_DAYS))
            recent = rows.execute(
                "SELECT key, run, confirms, family, cell, version FROM attempts WHERE place < ? AND time > ? "
                "ORDER BY place",
                (place, since),
            ).fetchall()
        confirming = confirms is not None
        same = [run for other, run, purpose, *_ in recent if other == key and (purpose is not None) == confirming]
        listed = tuple(same[-ATTEMPTS_LISTED_COUNT:])
        attempt = Attempt(key=key, number=len(same) + 1, earlier=listed, confirms=confirms)
        if own[0] is None:
            return attempt
        questions = [  # what confirms was chosen from nothing but other confirmations
            Look(*digests).question()
            for _, _, purpose, *digests in recent
            if digests[0] is not None and not (confirming and purpose is None)
        ]
        choice = choose(questions, Look(*own).question())
        looks = choice.looks if look is None or confirming else max(choice.looks, look.cells)
        return attempt.evolve(looks=looks, versions=choice.versions, others=choice.others)

    def of_sitting(self, look: Look, run_id: str, count: int) -> Look:
        """Return a sitting's look: its set's, or one more where the set has begun as many as its first request fixed.

        Of more sittings those could be chosen that say together what somebody likes.

        Args:
            look: of any sitting of the set.
            run_id: the run.
            count: how many sittings the set has.
        """
        with self._database.read() as rows:
            (begun,) = rows.execute(
                "SELECT COUNT(DISTINCT run) FROM attempts WHERE family = ? AND cell = ? AND run != ?",
                (look.family, look.cell, run_id),
            ).fetchone()
        if begun < count:
            return look
        return replace(look, cell=hashlib.sha256(f"{look.cell} {run_id}".encode()).hexdigest())

    def counted(self, key: str, run_id: str) -> bool:
        """Return whether a run of this question was counted here."""
        with self._database.read() as rows:
            row = rows.execute("SELECT 1 FROM attempts WHERE key = ? AND run = ?", (key, run_id)).fetchone()
        return row is not None

    def read_back(self, runs: Iterable[CountedRun]) -> None:
        """Count runs again that this runner counted before its state was lost, oldest first; known ones stay.

        Raises:
            JournalError: it could not be written.
        """
        values = [_row(run) for run in runs]
        with self._database.write() as rows:
            rows.executemany(_INSERT, values)


def _row(run: CountedRun) -> tuple[str | None, ...]:
    look = (None, None, None) if run.look is None else (run.look.family, run.look.cell, run.look.version)
    return run.key, run.run, run.time, run.confirms, *look


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
