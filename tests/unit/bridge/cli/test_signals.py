"""Signals end `kakeya-mac` in its own words, however early they come; real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.drift import ROOT

# Sends the process a signal in the middle of an import, as a busy machine does sooner or later.
INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Interrupt())
from bridge.cli.mac.main import main
sys.exit(main({words!r}))
"""
MODULES = ("bridge.cli.mac.program", "argparse", "bridge.cli.table.commands", "bridge.client.clone.config", "pydantic")


def interrupted(module, words, number, folder):
    environment = {"KAKEYA_DATA_DIR": str(folder / "data"), "KAKEYA_CONFIG_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    code = INTERRUPTED.format(module=module, number=number, words=words)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_during_an_import_detaches_in_one_line(module, tmp_path):
    ran = interrupted(module, ["ls"], 2, tmp_path)
    assert (ran.returncode, ran.stdout) == (130, ""), ran.stderr
    assert ran.stderr.startswith("detach")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("module", MODULES)
def test_sigterm_during_an_import_still_prints_the_one_document(module, tmp_path):
    ran = interrupted(module, ["ls", "--json"], 15, tmp_path)
    assert ran.returncode == 143, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["command"], document["outcome"]["reason"]) == ("ls", "detached")
