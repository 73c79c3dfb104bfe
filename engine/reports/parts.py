"""Join the parts that the launches of one run wrote into the one report that is declared.

A launch is a process of its own, so that start-up effects are seen as spread between launches instead of hidden.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import UsageError
from engine.reports.builder import Arm, Fallback, Report
from engine.reports.sample import Counters, Memory, Sample, Stages

FOLDER = "parts"
CALIBRATION = f"{FOLDER}/calibration.json"
"""What launch 0 of a series found, for the launches after it."""
REQUIRED = frozenset({"kind", "config", "environment", "started_at", "ended_at", "wall_s", "arms", "fallbacks"})
"""What joining needs of every part."""


def part_name(launch: int) -> str:
    """Return a part's path below the report directory."""
    return f"{FOLDER}/launch-{launch}.json"


def read_parts(out: Path, kinds: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the parts of a run in launch order; with ``kinds`` those of other workloads are refused.

    Raises:
        UsageError: If there are none, launches are missing, or a file is no part of such a workload.
    """
    paths = {path.stem.removeprefix("launch-"): path for path in (out / FOLDER).glob("launch-*.json")}
    names = sorted(paths, key=lambda name: (len(name), name))
    if not names or names != [str(launch) for launch in range(len(names))]:
        raise UsageError(f"{out / FOLDER} holds launches [{', '.join(names)}]; expected 0, 1, … without gaps")
    return [read_part(paths[name], kinds) for name in names]


def read_part(path: Path, kinds: Collection[str] = ()) -> dict[str, Any]:
    """Return one part; with ``kinds`` that of another workload is refused.

    Raises:
        UsageError: If the file is not there or no part of such a workload.
    """
    try:
        part = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}; measure the launch again") from error
    if not isinstance(part, dict) or not part.keys() >= REQUIRED:
        raise UsageError(f"{path} is no part of a report; expected an object with {', '.join(sorted(REQUIRED))}")
    if kinds and part["kind"] not in kinds:
        raise UsageError(
            f"{path} is a launch of {part['kind']!r}; expected {' or '.join(sorted(kinds))}. Join it with the command "
            "of its workload."
        )
    return part


def remove_parts(out: Path) -> None:
    """Delete the parts: only declared reports may be left in the directory."""
    for path in (*(out / FOLDER).glob("launch-*.json"), out / CALIBRATION):
        path.unlink(missing_ok=True)
    (out / FOLDER).rmdir()


def merge(parts: Sequence[Mapping[str, Any]]) -> Report:
    """Return one report: settings must agree, samples are concatenated in launch order, ``wall_s`` is summed.

    Raises:
        UsageError: If two launches ran under different settings.
    """
    first = parts[0]
    for part in parts[1:]:
        for name in ("kind", "config", "environment"):
            if part[name] != first[name]:
                raise UsageError(f"launches of one run differ in {name!r}; expected identical settings in all of them")
    arms: dict[str, Arm] = {}
    for part in parts:
        for arm in part["arms"]:
            merged = arms.get(arm["name"])
            samples = tuple(sample_from_json(row) for row in arm["samples"])
            earlier = merged.samples if merged else ()
            arms[arm["name"]] = Arm(arm["name"], arm["role"], arm["code_path"], earlier + samples)
    return Report(
        kind=first["kind"],
        config=first["config"],
        environment=first["environment"],
        started_at=min(part["started_at"] for part in parts),
        ended_at=max(part["ended_at"] for part in parts),
        wall_s=sum(part["wall_s"] for part in parts),
        arms=tuple(arms.values()),
        fallbacks=tuple(Fallback(**row) for part in parts for row in part["fallbacks"]),
        rows=first.get("rows"),
        prompts={digest: packed for part in parts for digest, packed in part.get("prompts", {}).items()},
    )


def sample_from_json(row: Mapping[str, Any]) -> Sample:
    """Return the sample that was written as ``row``."""
    values = dict(row)
    values["tokens"] = tuple(values["tokens"])
    for name in ("accepted_per_step", "drafted_per_step"):
        values[name] = None if values[name] is None else tuple(values[name])
    values["stages"] = Stages(**values["stages"])
    values["counters"] = Counters(**values["counters"])
    values["memory"] = Memory(**values["memory"])
    return Sample(**values)
