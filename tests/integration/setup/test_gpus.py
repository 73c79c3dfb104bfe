"""Set-up compares cards and driver with the locked torch before it installs anything; nvidia-smi is a stand-in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.setup.machine import Host

SMI = """#!/bin/sh
case "$1" in
  -L) echo "GPU 0: A card (UUID: GPU-0)" ;;
  *) printf '%s\\n' {cards} ;;
esac
"""


def set_up(tmp_path: Path, cards: str, *options: str):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI.format(cards=cards))
    (folder / "nvidia-smi").chmod(0o755)
    return Host(tmp_path).setup("--extras", "torch,github", *options, path=f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("cards", "line"),
    [
        ('"580.65.06, 9.0"', "ok     GPU: driver 580.65.06 and compute capability 9.0 fit the locked torch (CUDA 13)"),
        ('"610.12, 7.5"', "ok     GPU: driver 610.12 and compute capability 7.5 fit the locked torch (CUDA 13)"),
        ('"610.12, 12.0"', "ok     GPU: driver 610.12 and compute capability 12.0 fit the locked torch (CUDA 13)"),
        ('"570.86.10, 9.0"', "WRONG  the driver 570.86.10 is too old for the locked torch"),
        ('"580.65.06, 7.0"', "WRONG  a card of compute capability 7.0 is too old for the locked torch"),
        ('"580.65.06, 9.0" "580.65.06, 6.1"', "WRONG  a card of compute capability 6.1 is too old"),
        ('"[N/A], [N/A]"', "WRONG  nvidia-smi says neither driver nor compute capability"),
    ],
)
def test_cards_that_the_locked_torch_does_not_serve_are_found(tmp_path, cards, line):
    done = set_up(tmp_path, cards, "--constraints", "", "--dry-run")

    assert any(text.startswith(line) for text in done.stdout.splitlines()), done.stdout + done.stderr


def test_nothing_is_installed_for_a_card_that_is_too_old(tmp_path):
    done = set_up(tmp_path, '"570.86.10, 9.0"', "--constraints", "")

    assert done.returncode == 2
    assert "which was built for CUDA 13: it needs 580 or newer" in done.stderr
    assert not (tmp_path / "root/opt/kakeya").exists()


def test_another_torch_than_the_locked_one_is_not_judged_by_it(tmp_path):
    done = set_up(tmp_path, '"470.1, 3.5"', "--dry-run")

    assert "locked torch" not in done.stdout + done.stderr
