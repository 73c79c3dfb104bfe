"""The owner's command starts fast and says what it can do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bridge.cli.host.main import main
from bridge.runner.state.folder import NO_STATE_REMEDY


@pytest.mark.parametrize("words", [["--help"], ["help", "all"], ["serve", "--help"], ["trust"]])
def test_help_imports_nothing_heavy(words):
    code = (
        "import sys\n"
        "from bridge.cli.host.main import main\n"
        f"code = main({words!r})\n"
        "heavy = {'pydantic', 'git', 'numpy', 'psutil', 'torch', 'mlx', 'jsonschema', 'platformdirs'}\n"
        "print(sorted(heavy & set(sys.modules)), code, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stderr.strip() == "[] 0"
    assert done.stdout


@pytest.mark.enable_socket  # the trial of a sandbox listens on loopback
def test_the_doctor_names_a_state_folder_that_cannot_be_made_beside_all_else(tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    state, bus = tmp_path / "file" / "state", tmp_path / "nowhere.git"
    words = ["--state", str(state), "--policy", str(tmp_path / "policy.toml"), "--bus", str(bus)]
    assert main(["doctor", "--json", *words]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert (checks["state"]["level"], checks["state"]["remedy"]) == ("fail", NO_STATE_REMEDY)
    assert checks["state"]["text"] == f"{state}: Not a directory"
    assert checks["bus"]["level"] == "fail"
    assert main(["pause", "--state", str(state)]) == 3
    assert NO_STATE_REMEDY in capsys.readouterr().err
