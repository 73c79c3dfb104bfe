"""The wheel holds all that the three programs need: they run from it, away from the tree, with what they read."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.committed import SMOKE

ROOT = Path(__file__).resolve().parents[3]
MAC, RUNNER, ENGINE = "bridge.cli.mac.main", "bridge.cli.host.main", "engine.cli.main"
pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the wheel of the last commit and unpack it; return the folder."""
    top = tmp_path_factory.mktemp("wheel")
    tree = top / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(top), str(tree)]
    done = subprocess.run(build, cwd=top, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = top.glob("kakeya-*.whl")
    with zipfile.ZipFile(wheel) as archive_of_wheel:
        archive_of_wheel.extractall(top / "installed")
    return top / "installed"


def start(installed, folder, module, *words):
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(installed), "LANG": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-m", module, *words], cwd=folder, env=variables, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "words", "shown"),
    [
        (MAC, ("presets",), "mlx-env-probe"),
        (MAC, ("gate", "rules"), "G5-LAUNCHES"),
        (MAC, ("open", "--html", str(ROOT / SMOKE)), ".html"),
        (MAC, ("agent", "snippet"), "kakeya-mac"),
        (RUNNER, ("policy", "example"), "schema = 1"),
        (ENGINE, ("inspect", "--help"), "kakeya-engine inspect"),
    ],
)
def test_a_program_runs_from_the_wheel_alone(installed, tmp_path, module, words, shown):
    done = start(installed, tmp_path, module, *words)
    assert (done.returncode, shown in done.stdout) == (0, True), done.stderr + done.stdout
    assert str(ROOT / "bridge") not in done.stderr


def test_what_is_imported_is_the_wheel_and_every_module_of_the_tree_is_in_it(installed, tmp_path):
    where = "import bridge, engine; print(bridge.__file__, engine.__file__)"
    environment = {"PYTHONPATH": str(installed), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", where], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert [Path(path).parents[1] for path in done.stdout.split()] == [installed, installed]
    tracked = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "bridge", "engine"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    left_out = [name for name in tracked if not (installed / name).exists()]
    assert [name for name in left_out if not name.endswith(".safetensors")] == []


def test_the_weights_that_a_wheel_leaves_out_come_from_a_clone(installed, tmp_path):
    lacking = start(installed, tmp_path, ENGINE, "assets", "list")
    assert (lacking.returncode, "kakeya-engine assets add CLONE" in lacking.stdout) == (1, True), lacking.stderr
    assert start(installed, tmp_path, ENGINE, "assets", "add", str(ROOT)).returncode == 0
    assert start(installed, tmp_path, ENGINE, "assets", "list").returncode == 0
