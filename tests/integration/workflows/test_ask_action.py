"""The action that asks a host from a job, as the page's workflow uses it: its own step, its inputs, on a real bus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.client.test_two_people import TwoPeople
from tests.support.printed_page import GUIDES, carry_out

pytestmark = pytest.mark.ci

ACTION = Path(__file__).parents[3] / ".github" / "actions" / "run"
JOB_TOKEN = "token-of-the-job"
GH = """#!/bin/sh
# As GitHub's own in a job: it takes its token from this variable alone, and notes what it was asked for.
[ -n "$GH_TOKEN" ] || { echo "gh: set the GH_TOKEN environment variable" >&2; exit 4; }
printf '%s\\n' "$GH_TOKEN" "$*" > "$RUNNER_TEMP/dispatched"
"""


@pytest.fixture
def people(tmp_path_factory):
    two = TwoPeople(tmp_path_factory.mktemp("job"))
    two.serve()
    yield two
    two.stop()


def environment_of(given: dict[str, str]) -> dict[str, str]:
    """Return the variables of the action's step, its expressions filled in as Actions does."""
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    assert given.keys() <= action["inputs"].keys()
    values = {name: given.get(name, facts.get("default", "")) for name, facts in action["inputs"].items()}
    (step,) = action["runs"]["steps"]
    env = {name: text.replace("${{ github.token }}", JOB_TOKEN) for name, text in step["env"].items()}
    return {name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda match: values[match[1]], text)
            for name, text in env.items()}  # fmt: skip


def printed_inputs() -> dict[str, str]:
    """Return what the page's workflow hands to the action."""
    text = (GUIDES / "ten-minutes-ask-from-actions.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    steps = yaml.safe_load(block)["jobs"]["measure"]["steps"]
    (step,) = [step for step in steps if "/.github/actions/run@" in step.get("uses", "")]
    return {name: str(value) for name, value in step["with"].items()}


def run_step(people: TwoPeople, tmp_path: Path, given: dict[str, str], path: str | None = None):
    """Run the step in the colleague's clone; return how it ended, its outputs and the job's summary.

    Args:
        people: whose bus and clone they are.
        tmp_path: the job's temporary folder.
        given: inputs of the action.
        path: where programs are looked for; None for the colleague's own.
    """
    outputs, summary = tmp_path / "outputs", tmp_path / "summary"
    files = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary)}
    own = people.colleague.env | ({} if path is None else {"PATH": path})
    ran = subprocess.run(
        ["bash", "-c", '"$GITHUB_ACTION_PATH/run.sh"'], cwd=people.colleague.top,
        env={**own, **files, "GITHUB_ACTION_PATH": str(ACTION), **environment_of(given)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    lines = outputs.read_text().splitlines() if outputs.exists() else []
    return ran, dict(line.split("=", 1) for line in lines), summary.read_text() if summary.exists() else ""


def test_a_job_asks_signed_waits_and_has_the_summary(people, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True, timeout=60)
    kind, key, *_ = (tmp_path / "key.pub").read_text().split()
    let_in = carry_out(people.owner, f"kakeya-runner welcome 'github-actions {kind} {key}' --yes")
    assert let_in.returncode == 0, let_in.stderr
    shown = carry_out(people.owner, f"kakeya-runner trust show --bus {people.route}").stdout
    (root,) = re.findall(r"^owner +(\S+(?: \S+)?)$", shown, re.MULTILINE)
    given = printed_inputs() | {
        "bus": people.route, "root-key": root, "signing-key": (tmp_path / "key").read_text(), "wait": "200s",
    }  # fmt: skip

    ran, outputs, summary = run_step(people, tmp_path, given)

    assert ran.returncode == 0, ran.stderr
    assert (outputs["reason"], outputs["verdict"]) == ("passed", "evidence"), ran.stderr
    assert re.fullmatch(r"[0-9a-z]{26}", outputs["id"])
    assert Path(outputs["folder"], "run.json").is_file()
    assert "github-actions" in summary
    assert not (tmp_path / "kakeya-key").exists()


@pytest.mark.parametrize(
    ("of_workflow", "used"),
    [({}, JOB_TOKEN), ({"GITHUB_TOKEN": "token-of-the-workflow"}, "token-of-the-workflow")],
)
def test_a_workflow_that_wakes_the_host_is_dispatched_with_its_own_token_or_the_job_s(
    people, tmp_path, of_workflow, used
):
    people.colleague.environment = people.colleague.environment | of_workflow
    program = tmp_path / "bin" / "gh"
    program.parent.mkdir()
    program.write_text(GH)
    program.chmod(0o755)
    given = {"bus": people.route, "preset": "mlx-env-probe", "wait": "200s", "dispatch": "mac-bridge.yml"}

    ran, outputs, _ = run_step(people, tmp_path, given, f"{program.parent}:{people.colleague.env['PATH']}")

    assert ran.returncode == 0, ran.stderr
    token, words = (tmp_path / "dispatched").read_text().splitlines()
    assert token == used
    assert words.startswith(f"workflow run mac-bridge.yml -f request_branch=mac-bridge/mlx-env-probe-{outputs['id']}")


def test_a_preset_that_is_none_fails_the_step_with_what_to_do(people, tmp_path):
    ran, outputs, _ = run_step(people, tmp_path, {"bus": people.route, "preset": "no-such"})
    assert ran.returncode == 1
    assert "no-such" in ran.stdout
    assert outputs == {}


def test_the_action_is_one_by_githubs_schema_and_puts_no_input_into_a_command():
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", ACTION / "action.yml"],
        capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
    zizmor = [str(Path(sys.executable).parent / "zizmor"), "--offline", "--persona", "auditor", "--no-progress"]
    audited = subprocess.run(
        [*zizmor, str(ACTION / "action.yml")], capture_output=True, text=True, timeout=240, check=False
    )
    assert audited.returncode == 0, audited.stdout
