"""Run a workflow's `run:` steps the way the Actions runner does, closely enough that injection reproduces.

`${{ }}` is replaced textually before the shell sees the script; GITHUB_ENV, GITHUB_PATH and GITHUB_OUTPUT are honoured
between steps; `if` supports the status functions and equality, which is what these workflows use; `uses:` calls back.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
STEP_TIMEOUT_S = 240


@dataclass
class StepResult:
    """One step: its outcome is `success`, `failure` or `skipped`; output is both streams."""

    name: str
    outcome: str
    exit_code: int | None
    output: str


@dataclass
class Job:
    """A job being run; `context` is what `${{ }}` can see."""

    context: dict[str, Any]
    environment: dict[str, str]
    cwd: Path
    results: list[StepResult] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(result.outcome == "failure" for result in self.results)


def load(path: Path) -> dict[str, Any]:
    """Return a workflow; YAML 1.1 reads the key `on` as true, which is undone."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    if True in workflow:
        workflow["on"] = workflow.pop(True)
    return workflow


def triggered_by_push(workflow: Mapping[str, Any], branch: str, changed: list[str]) -> bool:
    """Return whether a push of these paths to a branch would start the workflow."""
    push = workflow["on"].get("push")
    if push is None:
        return False
    branches, paths = push.get("branches", ["**"]), push.get("paths", ["**"])
    return any(_glob(pattern, branch) for pattern in branches) and any(
        _glob(pattern, path) for pattern in paths for path in changed
    )


def run_job(
    workflow: Mapping[str, Any],
    name: str,
    *,
    context: Mapping[str, Any],
    environment: Mapping[str, str],
    cwd: Path,
    uses: Callable[[str, Mapping[str, Any]], None] | None = None,
) -> Job:
    """Run one job's steps in order and return what happened."""
    described = workflow["jobs"][name]
    job = Job(dict(context), dict(environment), cwd)
    job.context.setdefault("inputs", {})
    for source in (workflow.get("env", {}), described.get("env", {})):
        job.environment.update({key: substitute(str(value), job.context) for key, value in source.items()})
    for step in described["steps"]:
        _run_step(job, step, uses)
    return job


def substitute(text: str, context: Mapping[str, Any]) -> str:
    """Replace every expression by its value, textually: quotes in a value end up in the script as they are."""
    return _EXPRESSION.sub(lambda match: str(evaluate(match.group(1).strip(), context)), text)


def evaluate(expression: str, context: Mapping[str, Any]) -> Any:
    """Evaluate `a.b`, `a || b`, `a == b` and string literals."""
    if "||" in expression:
        for part in expression.split("||"):
            value = evaluate(part.strip(), context)
            if value not in ("", None, False):
                return value
        return ""
    if "==" in expression:
        left, right = (evaluate(part.strip(), context) for part in expression.split("==", 1))
        return left == right
    if expression.startswith("'") and expression.endswith("'"):
        return expression[1:-1]
    value: Any = context
    for part in expression.split("."):
        value = value.get(part, "") if isinstance(value, Mapping) else ""
    return value


def _run_step(job: Job, step: Mapping[str, Any], uses: Callable[[str, Mapping[str, Any]], None] | None) -> None:
    name = str(step.get("name") or step.get("id") or step.get("uses") or step.get("run"))
    if not _due(str(step.get("if", "success()")), job):
        job.results.append(StepResult(name, "skipped", None, ""))
        return
    if "uses" in step:
        if uses is not None:
            uses(str(step["uses"]), step.get("with", {}))
        job.results.append(StepResult(name, "success", 0, ""))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = {key: Path(folder) / key for key in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT")}
        for path in files.values():
            path.touch()
        environment = {**job.environment, **{key: str(path) for key, path in files.items()}}
        environment.update({key: substitute(str(value), job.context) for key, value in step.get("env", {}).items()})
        environment["PATH"] = os.pathsep.join([*job.paths, environment.get("PATH", os.environ["PATH"])])
        script = substitute(str(step["run"]), job.context)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=job.cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
        job.environment.update(_assignments(files["GITHUB_ENV"]))
        job.paths[:0] = files["GITHUB_PATH"].read_text().split()
        if step.get("id"):
            outputs = _assignments(files["GITHUB_OUTPUT"])
            job.context.setdefault("steps", {})[step["id"]] = {"outputs": outputs}
    outcome = "success" if done.returncode == 0 else "failure"
    job.results.append(StepResult(name, outcome, done.returncode, done.stdout.decode(errors="replace")))


def _due(condition: str, job: Job) -> bool:
    bare = condition.removeprefix("${{").removesuffix("}}").strip()
    if bare == "always()":
        return True
    if bare == "failure()":
        return job.failed
    is_true = True if bare == "success()" else bool(evaluate(bare, job.context))
    return is_true and not job.failed


def _assignments(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)


def _glob(pattern: str, text: str) -> bool:
    """Match like Actions: `*` stops at a slash, `**` does not."""
    translated = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    return re.fullmatch(translated, text) is not None
