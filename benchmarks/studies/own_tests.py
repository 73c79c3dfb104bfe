"""What an area's own tests add to `make test`: the processor seconds of the files that came with its issue.

All files of an area run in one process, as one worker of `make test` runs them and without the slow tests, so that
interpreter, imports and collection are paid and counted once, beside the tests. Processor time, as a clock on the
wall says how busy the machine was; `make test` runs on two cores, so that it takes about half of it longer.
A whole run imports on each of its four workers, and most of what an area imports is imported there for others' tests
as well. Not in it: tests that were added to files that were there before.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

NAME = "own-tests"
CORES = 2  # what `make test` is promised for
UNIT, INTEGRATION, CONFORMANCE = "tests/unit", "tests/integration", "tests/conformance"
BRIDGE, ENGINE = f"{UNIT}/bridge", f"{UNIT}/engine"
PLACES: dict[str, tuple[str, ...]] = {
    "bus": (
        f"{CONFORMANCE}/bus/test_archives.py",
        f"{INTEGRATION}/bus/test_archived_results.py",
        f"{INTEGRATION}/bus/test_hostile_refs.py",
        f"{BRIDGE}/bus/test_archive_parts.py",
        f"{BRIDGE}/bus/test_dead_beacons.py",
        f"{BRIDGE}/bus/test_kept_claims.py",
        f"{BRIDGE}/bus/test_renewals.py",
        f"{BRIDGE}/runner/test_inbox.py",
        f"{BRIDGE}/runner/test_rests.py",
        f"{UNIT}/steps/test_findings.py",
    ),
    "front-door": (
        f"{INTEGRATION}/mcp",
        f"{BRIDGE}/mcp",
        f"{BRIDGE}/cli/test_json_lines.py",
        f"{BRIDGE}/cli/test_mistyped.py",
        f"{BRIDGE}/cli/test_screens.py",
        f"{BRIDGE}/client/page",
        f"{BRIDGE}/client/test_agent_files.py",
        f"{BRIDGE}/client/test_cause.py",
        f"{BRIDGE}/client/test_offers.py",
        f"{BRIDGE}/client/test_quotas.py",
        f"{BRIDGE}/executor/test_progress.py",
        f"{BRIDGE}/runner/test_quotas.py",
        f"{BRIDGE}/test_durations.py",
        f"{ENGINE}/cards",
        f"{UNIT}/test_locks.py",
        f"{UNIT}/test_release_ready.py",
    ),
    "clusters": (
        f"{CONFORMANCE}/executor/test_limits_alike.py",
        f"{CONFORMANCE}/executor/test_placed_runs.py",
        f"{CONFORMANCE}/executor/test_ray_answers.py",
        f"{CONFORMANCE}/executor/test_ray_runs.py",
        f"{CONFORMANCE}/executor/test_slow_engines.py",
        f"{INTEGRATION}/executor/test_apart.py",
        f"{INTEGRATION}/runner/test_once_ephemeral.py",
        f"{BRIDGE}/executor/test_node.py",
        f"{BRIDGE}/runner/test_ticket.py",
    ),
    "distributed": (
        f"{CONFORMANCE}/engine/test_drafter_contract.py",
        f"{INTEGRATION}/distributed",
        f"{INTEGRATION}/engine_torch/test_lender.py",
        f"{INTEGRATION}/setup/test_drafter_host.py",
        f"{UNIT}/benchmarks/test_remote_studies.py",
        f"{ENGINE}/decoding/test_late_drafter.py",
        f"{ENGINE}/distributed",
        f"{ENGINE}/isolation",
    ),
    "restoration": (
        f"{CONFORMANCE}/engine/test_lattice_codes.py",
        f"{CONFORMANCE}/engine/test_pages.py",
        f"{CONFORMANCE}/engine/test_restored_rows.py",
        f"{CONFORMANCE}/engine/test_streamed_rows.py",
        f"{CONFORMANCE}/engine_families/test_projected_rows.py",
        f"{INTEGRATION}/training/test_ftheta_command.py",
        f"{UNIT}/benchmarks/test_page_recall.py",
        f"{UNIT}/benchmarks/test_restored_recall.py",
        f"{ENGINE}/evaluation/test_drawn_out_of.py",
        f"{ENGINE}/restoration",
        f"{ENGINE}/test_page_store.py",
    ),
    "evidence": (
        f"{INTEGRATION}/engine/test_turn_presets.py",
        f"{INTEGRATION}/executor/test_confirming.py",
        f"{INTEGRATION}/executor/test_turns.py",
        f"{INTEGRATION}/gate/test_recorded_lies.py",
        f"{BRIDGE}/gate/test_archive.py",
        f"{BRIDGE}/gate/test_attempts.py",
        f"{BRIDGE}/gate/test_fallen.py",
        f"{BRIDGE}/gate/test_launches.py",
        f"{BRIDGE}/gate/test_premises.py",
        f"{BRIDGE}/gate/test_turns.py",
        f"{BRIDGE}/launches",
        f"{ENGINE}/evaluation/test_in_turns.py",
        f"{ENGINE}/mlx/test_recompute.py",
    ),
    "engine": (
        f"{CONFORMANCE}/engine_families/test_against_stock.py",
        f"{CONFORMANCE}/engine_families/test_published_folders.py",
        f"{CONFORMANCE}/engine_families/test_recurrent_state.py",
        f"{CONFORMANCE}/engine_families/test_rotary.py",
        f"{INTEGRATION}/engine/test_conversation.py",
        f"{INTEGRATION}/engine/test_published_folders.py",
        f"{INTEGRATION}/engine/test_start_up.py",
        f"{ENGINE}/conversion",
        f"{ENGINE}/decoding/test_choice.py",
        f"{ENGINE}/evaluation/test_proposal.py",
        f"{ENGINE}/mlx/test_blas.py",
        f"{ENGINE}/mlx/test_compiled.py",
        f"{ENGINE}/structure/test_decoder.py",
        f"{ENGINE}/structure/test_memory.py",
        f"{ENGINE}/test_chat.py",
        f"{ENGINE}/test_digests.py",
        f"{ENGINE}/test_errors.py",
        f"{ENGINE}/test_recurrent_state.py",
    ),
}
"""By area, the files and folders of tests that its issue added."""


def files(area: str) -> list[str]:
    """Return an area's own files of tests, relative to the root."""
    found: list[str] = []
    for place in PLACES[area]:
        path = ROOT / place
        inside = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        found += [one.relative_to(ROOT).as_posix() for one in inside]
    return found


def case(area: str) -> str:
    """Return the name of an area's only case; another number of files is another case."""
    return f"{len(files(area))} files in one process"


def measured(places: Sequence[str]) -> Row:
    """Run these tests in one process and return what they take.

    Raises:
        RuntimeError: one failed, or there are none.
    """
    program = (sys.executable, "-m", "benchmarks.studies.file_seconds", "-n", "0", "-q", "-m", "not slow")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*program, "-p", "no:cacheprovider", *places], cwd=ROOT, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(places)}: {done.stdout[-4000:]}{done.stderr[-1000:]}")
    of_files: dict[str, Row] = json.loads(done.stdout.splitlines()[-1])
    all_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    tests_s = sum(one["processor s"] for one in of_files.values())
    return {
        "files": of_files,
        "tests": sum(one["tests"] for one in of_files.values()),
        "skipped": sum(one["skipped"] for one in of_files.values()),
        "start, imports and collection, processor s": round(all_s - tests_s, 1),
        "processor s": round(all_s, 1),
    }


def run(area: str, _case: str) -> list[Row]:
    """Run an area's own tests once."""
    return [measured(files(area))]


def study(area: str) -> Study:
    """Return the study of an area's own tests."""
    about = "How much processor time do the area's own tests add to `make test`?"
    return Study(NAME, about, lambda: [case(area)], partial(run, area))


STUDIES = {area: study(area) for area in PLACES}
