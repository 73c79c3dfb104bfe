"""What a requester installs: a wheel built from this tree in a new environment, its size and its distributions.

The environment then judges a committed report and checks a signature, so that what is measured is enough to work with.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

CASES: Final = ("base",)
SIGNED: Final = """
import pathlib
from bridge.trust.keyring import sign, signer_of
from bridge.trust.runner_key import generate, signing_key
folder = pathlib.Path("keys")
folder.mkdir(mode=0o700)
public = generate(folder, "desk").public
made = sign("text/plain", b"a result", signing_key(folder))
assert signer_of("text/plain", b"a result", made, [public]) == public
assert signer_of("text/plain", b"another", made, [public]) is None
"""
PIP = ("pip",)
"""What every environment holds before the wheel; not counted."""


def cases() -> Sequence[str]:
    """Return the one case: what every requester installs."""
    return CASES


def run(_case: str) -> list[Row]:
    """Install the wheel into a new environment and measure what came.

    Raises:
        subprocess.CalledProcessError: it cannot be built or installed, or the installation does not judge.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-size-") as folder:
        place = Path(folder)
        wheel = built(place)
        wheel_bytes = wheel.stat().st_size
        subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
        python = place / "venv" / "bin" / "python"
        before = _bytes(place / "venv")
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        install = [*pip, "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
        subprocess.run(install, check=True)
        listed = json.loads(subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True).stdout)
        names = sorted(one["name"] for one in listed if one["name"] not in {*PIP, "setuptools"})
        size = _bytes(place / "venv") - before
        judge = [python.parent / "kakeya-mac", "gate", "check", ROOT / "docs" / "evidence"]
        subprocess.run(judge, check=True, cwd=folder, capture_output=True)
        subprocess.run([python, "-P", "-c", SIGNED], check=True, cwd=folder, capture_output=True)
    return [{"wheel_bytes": wheel_bytes, "bytes": size, "distributions": len(names), "names": names}]


def built(folder: Path) -> Path:
    """Return a wheel of the committed tree, built in a folder."""
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", clone], check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", folder / "dist", clone], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder, bytecode included."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


STUDY = Study("requester-size", "What does a requester install?", cases, run)
