"""Sentences of the issues that tests show: which ones, and how they ended last.

Each area that has such sentences has a study called `proofs`, a sentence a case.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

SUPERVISOR = "tests/integration/executor/test_supervisor.py"
RUN_UNIT = "tests/integration/executor/test_run_unit.py"
KILLED = "tests/integration/executor/test_killed_from_outside.py"
CRASHES = "tests/integration/runner/test_crashes.py"
SERVE = "tests/integration/runner/test_serve.py"
ARCHIVED = "tests/integration/bus/test_archived_results.py"
FIRST_STEPS = "tests/integration/client/test_first_steps.py"
CLOSED_PLACE = "tests/integration/client/test_closed_place.py"
FOLDERS = "tests/conformance/engine_families/test_published_folders.py"
CHAT = "tests/unit/engine/test_chat.py"
DOCUMENTS = "tests/unit/test_documents.py"
PAGED = "tests/conformance/engine/test_pages.py"
RESTORED = "tests/conformance/engine/test_restored_rows.py"
STREAMED = "tests/conformance/engine/test_streamed_rows.py"
EVALUATED = "tests/integration/engine/test_eval_caches.py"
CORPUS = "tests/unit/bridge/gate/test_corpus.py"
REMOTE, REMOTE_PARTS = "tests/integration/distributed", "tests/unit/engine/distributed"
PLACED = "tests/conformance/executor/test_placed_runs.py"
RAY_RUNS = "tests/conformance/executor/test_ray_runs.py"
SLOW_ENGINES = "tests/conformance/executor/test_slow_engines.py"
PROOFS: dict[str, dict[str, tuple[str, ...]]] = {
    "rooms": {
        "recovery's table": ("tests/unit/bridge/runner/test_recovery.py",),
        "committed results verify": ("tests/unit/bridge/gate/test_evidence.py",),
    },
    "executor": {
        "a sandbox under each protection of the units": ("tests/integration/setup/test_units.py",),
        "a run behind a service manager's socket": (RUN_UNIT,),
        "runs of an ordinary user as users of its range": ("tests/integration/executor/test_own_users.py",),
        "kill between journalled and started": (CRASHES, "-k", "prepared or started or left_running"),
        "kill -9 of the supervisor, sandbox killed, OOM": (KILLED, SUPERVISOR, RUN_UNIT, "-k", "killed"),
        "the package replaced in mid-run": (SUPERVISOR, "-k", "needs_none_of_its_files"),
        "restart by systemctl and launchctl": ("-m", "slow", "tests/integration/setup/test_restarts.py"),
        "stop, stop --runs, drain, drain --now": (SERVE, "-k", "restarted or stop or drain"),
    },
    "bus": {
        "40 kinds of hostile refs": ("-m", "", "tests/integration/bus/test_hostile_refs.py"),
        "a remote that lists all of its refs": (ARCHIVED,),
        "results after archiving and gc": (ARCHIVED, "tests/conformance/bus/test_archives.py"),
        "old renewals pushed again": (
            "tests/unit/bridge/bus/test_renewals.py",
            "tests/unit/bridge/runner/test_leases.py",
        ),
        "fair between principals": ("tests/unit/bridge/runner/test_inbox.py",),
        "asked to end while the remote hangs": ("-m", "slow", "tests/integration/runner/test_stopping.py"),
        "three findings": ("tests/unit/steps",),
    },
    "front-door": {
        "a scripted MCP client": ("tests/integration/mcp",),
        "a run of two hours": ("tests/unit/bridge/mcp",),
        "comparison": (DOCUMENTS, "-k", "said_to_be_there"),
        "a fresh HOME": ("-m", "slow", FIRST_STEPS),
        "a closed place": ("-m", "slow", CLOSED_PLACE),
        "a summary's plot": ("tests/unit/bridge/publish/test_tree.py",),
        "every command line": (DOCUMENTS,),
    },
    "clusters": {
        "limits and redaction": ("tests/conformance/executor/test_limits_alike.py",),
        "done without a result": (PLACED, RAY_RUNS, "-k", "without_a_result or killed_supervisor"),
        "kill between submit and journal": (
            PLACED,
            RAY_RUNS,
            SLOW_ENGINES,
            "-k",
            "before_it_had_the_number or taken_and_not_answered or left_while or arrives_after or had_once",
        ),
        "an engine that forgot": (PLACED, RAY_RUNS, "-k", "without_a_result or forgot"),
        "an engine that is slow": (SLOW_ENGINES, "tests/conformance/executor/test_ray_answers.py"),
        "root submits nothing": (PLACED, RAY_RUNS, "-k", "root_submits"),
        "once --ephemeral": ("-m", "", "tests/integration/runner/test_once_ephemeral.py"),
        "the guide page": (DOCUMENTS, "-k", "clusters"),
    },
    "engine": {
        "folders as published": (
            CHAT,
            "tests/integration/engine/test_published_folders.py",
            "tests/integration/engine/test_conversation.py",
        ),
        "conversion": ("tests/unit/engine/conversion",),
        "published layouts": ("-m", "", FOLDERS),
        "bad input": (FOLDERS, CHAT, "-k", "line or broken"),
        "choices on recorded costs": ("tests/unit/engine/decoding/test_choice.py",),
    },
    "restoration": {
        "trained by each loss, stopped or not": (
            "tests/unit/engine/restoration/test_distilling.py",
            "tests/integration/training/test_ftheta_command.py",
        ),
        "exact layers keep every row": (RESTORED, "-k", "every_row_is_kept"),
        "positions forwarded": (RESTORED, EVALUATED, "-k", "mix or beside_the_native_one"),
        "sessions side by side": (PAGED, RESTORED, "-k", "side or mix"),
        "identity and noise": (RESTORED,),
        "rows made again": ("tests/conformance/engine_families/test_projected_rows.py",),
        "pages and their policies": (PAGED, STREAMED),
        "stores of pages": ("tests/unit/engine/test_page_store.py",),
        "one exact layer": ("tests/conformance/engine/test_caches_and_drafters.py", "-k", "masks or exact"),
        "cheats in bounded recall": (CORPUS, "-k", "restored or injection or pool or index or context or lists"),
        "bounded recall comes out again": (EVALUATED, "-k", "bounded_caches"),
        "layouts that cannot be": ("tests/unit/engine/test_cache_layout.py",),
    },
    "distributed": {
        "perfect, wrong, late, dying, lying drafters": (
            f"{REMOTE}/test_faults.py",
            f"{REMOTE}/test_identity.py",
            f"{REMOTE_PARTS}/test_remote_drafter.py",
            f"{REMOTE_PARTS}/test_loopback.py",
        ),
        "always late, on a virtual clock": ("tests/unit/engine/decoding/test_late_drafter.py",),
        "gossip": (f"{REMOTE_PARTS}/test_membership.py", f"{REMOTE}/test_nodes.py"),
    },
}
"""What to give pytest, by area and by what it shows."""


def run(area: str, case: str) -> list[Row]:
    """Run the tests of one sentence.

    Raises:
        RuntimeError: one failed, or this machine lacks what one of them needs.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *PROOFS[area][case]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()[-1] if done.stdout else ""
    if done.returncode != 0 or " passed" not in f" {said}" or "skipped" in said:
        raise RuntimeError(done.stdout[-4000:])
    return [{"outcome": said}]


def study(area: str) -> Study:
    """Return the study of an area's sentences."""
    return Study("proofs", "Do the tests of each sentence pass?", lambda: tuple(PROOFS[area]), partial(run, area))


STUDIES = {area: study(area) for area in PROOFS}
