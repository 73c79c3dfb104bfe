"""Mutated definitions and reports of an owner's own program: a mistake is a line or a finding, never a traceback.

Nothing is started: a definition that passes its check after a mutation runs what the owner's file then says, so its
programs have to be files of the folder. Resumable: a case is a kind of input and a seed.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pydantic

from benchmarks.studies.study import Row, Study
from bridge import strictjson
from bridge.gate import judge
from bridge.presets.workloads.file_text import parsed
from bridge.presets.workloads.folder import read_folder
from bridge.presets.workloads.problems import problems
from bridge.records import JobSpec
from bridge.strictjson import StrictJsonError
from tests.corpus.gate.workloads import trained
from tests.support.workload_folder import INTERPRETER, write_workload

SEEDS = 20
PER_CASE = {"definitions": 3000, "reports": 1600, "folders": 100, "specs": 800}
_BYTES = b'{}[]"\\=.,:#-0159eE+naN/\n\x00\xff truefalsnl'


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few of them replaced, removed, doubled or moved."""
    text = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(text) + 1), rng.randint(1, 24)
        match rng.randrange(4):
            case 0:
                text[at : at + 1] = bytes([rng.choice(_BYTES)])
            case 1:
                del text[at : at + length]
            case 2:
                text[at:at] = text[at : at + length]
            case _:
                piece = text[at : at + length]
                del text[at : at + length]
                place = rng.randrange(len(text) + 1)
                text[place:place] = piece
        if not text:
            text += b" "
    return bytes(text)


def cases() -> Sequence[str]:
    """Return a case for each kind of input and seed."""
    return [f"{kind}-{seed}" for kind in PER_CASE for seed in range(SEEDS)]


def run(case: str) -> list[Row]:
    """Mutate one kind of input as often as a case has it; a traceback leaves the case open."""
    kind, _, seed = case.rpartition("-")
    rng, count = random.Random(case), PER_CASE[kind]
    with tempfile.TemporaryDirectory() as top:
        Path(top).chmod(0o755)
        folder = write_workload(Path(top), recompute=True)
        taken = sum(_ONE[kind](folder, rng) for _ in range(count))
    return [{"kind": kind, "seed": int(seed), "mutations": count, "taken": taken}]


def _definition(folder: Path, rng: random.Random) -> bool:
    text = mutate((folder / "workload.toml").read_bytes(), rng).decode("utf-8", "replace")
    file, said = parsed(text)
    assert (file is None) == bool(said)
    assert all(what and remedy for _, what, remedy in said)
    return file is not None


def _folder(folder: Path, rng: random.Random) -> bool:
    """Check a whole folder; what passes runs only files of the folder, with the interpreter that the file names."""
    path = folder / "workload.toml"
    original = path.read_bytes()
    try:
        path.write_bytes(mutate(original, rng))
        found = list(problems(folder, INTERPRETER))
        assert all(check.text and check.remedy and "\n" not in check.text for check in found)
        if any(check.level == "fail" for check in found):
            return False
        for preset in read_folder(folder, INTERPRETER).presets.values():
            for command in preset.commands:
                assert any(word.startswith(f"{folder}/") for word in command.argv[:3]), command.argv
        return True
    finally:
        path.write_bytes(original)


def _report(_: Path, rng: random.Random) -> bool:
    case = trained()
    path = rng.choice(sorted(case.reports))
    data = mutate(json.dumps(case.reports[path]).encode(), rng)
    del case.reports[path]
    case.raw[path] = data
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert not any("could not judge" in finding.message for finding in verdict.findings), verdict.findings
    return verdict.decision != "rejected"


def _spec(_: Path, rng: random.Random) -> bool:
    """Mutate the definition inside a job spec, as a forged result would have it."""
    case = trained()
    try:
        spec = JobSpec.parse(mutate(strictjson.encode(case.spec), rng), max_bytes=1 << 26)
    except (StrictJsonError, pydantic.ValidationError):
        return False
    return judge(case.run_id, case.files(), case.record_value(), spec).decision != "rejected"


_ONE = {"definitions": _definition, "folders": _folder, "reports": _report, "specs": _spec}

STUDY = Study("workload-mutations", "Does any mutation of a definition or a report end in a traceback?", cases, run)
