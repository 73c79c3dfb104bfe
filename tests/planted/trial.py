"""Look for one planted fault: run its selections in turn until a test fails that passes without it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.planted import rooms
from tests.planted.fault import Fault
from tests.planted.tree import Tree

STAGE_MAX_S = 900
TEST_MAX_S = 300
HUNG = 10
"""A test that ran out of time found a fault only if it takes so many times less without it: a machine may be busy."""
_NO_SUCH_TEST = 4  # pytest's exit code for what it was given and does not know
_RAN_OUT = "Timeout (>"  # as pytest-timeout says it
_PASSED = re.compile(r"^PASSED (\S+\.py\S*(?:\[.*?\])?)$", re.MULTILINE)
_GONE = re.compile(r"^ERROR: not found: (.+?)$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py\S*(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What one call of pytest said.

    Attributes:
        code: its exit code, None for one that took too long.
        failed: the first failing test.
        output: what it printed.
        wall_s: how long it took.
    """

    code: int | None
    failed: str | None
    output: str
    wall_s: float

    @property
    def ran_out(self) -> bool:
        """Whether the test failed because it ran out of time."""
        return _RAN_OUT in self.output


def call(tree: Tree, paths: Sequence[str], *, workers: int, stop: Sequence[str] = ("-x",)) -> Outcome:
    """Run tests in a copy until one fails; `stop` are pytest's options that end it there."""
    words = [tree.python, "-m", "pytest", *stop, "-q", "-p", "no:cacheprovider", "-m", "not slow", "--tb=line"]
    words += [f"--timeout={TEST_MAX_S}", *(("-n", str(workers), "--dist", "loadfile") if workers else ("-n", "0"))]
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    began = time.monotonic()
    with subprocess.Popen(
        [*map(str, words), *paths],
        cwd=tree.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=STAGE_MAX_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Outcome(None, None, output, time.monotonic() - began)
    failed = _FAILED.search(output)
    return Outcome(process.returncode, failed[1] if failed else None, output, time.monotonic() - began)


def passing(tree: Tree, tests: Sequence[str]) -> frozenset[str]:
    """Return which of these tests pass without a fault, run together, so that no trial has to run them again."""
    remaining = list(tests)
    while remaining:
        outcome = call(tree, remaining, workers=0, stop=("-rA",))
        gone = {test.removeprefix(f"{tree.folder}/") for test in _GONE.findall(outcome.output)}
        left = [
            test for test in remaining if test.split("[")[0] not in gone
        ]  # pytest names them without their parameters
        if outcome.code != _NO_SUCH_TEST or left == remaining:
            return frozenset(_PASSED.findall(outcome.output))
        remaining = left
    return frozenset()


def trial(tree: Tree, fault: Fault, finders: Sequence[str], passing: Collection[str]) -> dict[str, object]:
    """Return the report's row of one fault.

    Args:
        tree: where it is planted.
        fault: the slip.
        finders: tests that found it before.
        passing: tests that are known to pass without it.
    """
    began = time.monotonic()
    row: dict[str, object] = {"fault": fault.name, "room": fault.room, "detected": False, "by": None, "stage": None}
    tried: list[str] = []
    passed_over: list[str] = []
    for stage, paths in rooms.stages(fault, tree.folder, finders):
        tried.append(stage)
        with tree.with_fault(fault):
            outcome = call(tree, paths, workers=0 if stage in {"found before", "look"} else 2)
        if outcome.code in {0, 5}:  # all passed, or nothing was selected
            continue
        if outcome.failed is None:
            passed_over.append(f"{stage}: {_last(outcome)}")
            continue
        passes_without = outcome.failed in passing and not outcome.ran_out
        why = None if passes_without else doubt(outcome, call(tree, [outcome.failed], workers=0))
        if why is None:
            row |= {"detected": True, "by": outcome.failed, "stage": stage}
            break
        passed_over.append(f"{stage}: {outcome.failed} {why}")
    row["seconds"] = round(time.monotonic() - began, 1)
    row |= {} if row["detected"] else {"tried": tried}
    return row | ({"passed_over": passed_over} if passed_over else {})


def doubt(outcome: Outcome, again: Outcome) -> str | None:
    """Return why a test that failed with a fault says nothing of it, None where it found the fault.

    Args:
        outcome: the call with the fault.
        again: that test without it.
    """
    if again.code != 0:
        return "fails without the fault too"
    if outcome.ran_out and again.wall_s > TEST_MAX_S / HUNG:
        return f"ran out of time, and takes {again.wall_s:.0f} s without the fault"
    return None


def _last(outcome: Outcome) -> str:
    if outcome.code is None:
        return f"took more than {STAGE_MAX_S} s"
    return f"exit {outcome.code}: {' '.join(outcome.output.split())[-200:]}"
