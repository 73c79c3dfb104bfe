"""What set-up installs is pinned by digest, and set-up says when something else is installed."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.drift import ROOT

LOCKS = ROOT / "runner-setup" / "locks"


def pinned(lock: Path) -> dict[str, str]:
    """Return each locked version by name; every one has a digest."""
    versions = {}
    for entry in lock.read_text("ascii").replace("\\\n", " ").splitlines():
        name, version = entry.split(";")[0].split()[0].split("==")
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry
        versions[canonicalize_name(name)] = version
    return versions


@pytest.mark.parametrize(("host", "extras"), [("mac", ("mlx", "github")), ("gpu", ("torch", "github"))])
def test_a_lock_pins_all_that_its_host_is_given_to_the_versions_that_are_tested(host, extras):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = project["dependencies"] + [
        requirement for extra in extras for requirement in project["optional-dependencies"][extra]
    ]
    lines = (ROOT / "constraints.txt").read_text("ascii").splitlines()
    tested = {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }
    lock = pinned(LOCKS / f"{host}.txt")

    assert {canonicalize_name(Requirement(requirement).name) for requirement in requirements} <= lock.keys()
    assert {name: version for name, version in lock.items() if tested.get(name, version) != version} == {}
    script = "setup_mac.sh" if host == "mac" else "setup_gpu.sh"
    assert f"\nEXTRAS={','.join(extras)}\n" in (ROOT / "runner-setup" / script).read_text()


def test_an_environment_that_is_not_the_locked_one_is_named_package_by_package(tmp_path):
    installed = {
        canonicalize_name(distribution.name): distribution.version
        for distribution in importlib.metadata.distributions()
    }
    lock = tmp_path / "lock.txt"
    # A build for this machine's hardware has a suffix of its own; not all that is installed is of the lock.
    named = {name: version.partition("+")[0] for name, version in installed.items() if name != "pytest"}
    named["colorama"] = "9 ; sys_platform == 'win32'"
    lock.write_text("".join(f"{name}=={version} \\\n    --hash=sha256:00\n" for name, version in named.items()))

    assert "ok     packages as " in checked(lock)
    lock.write_text(lock.read_text().replace(f"pydantic=={installed['pydantic']} ", "pydantic==1.0 ", 1))
    output = checked(lock)
    assert f"not as {lock} has them: pydantic=={installed['pydantic']}\n" in output
    assert "repair: run this script again without --check" in output
    lock.write_text("not-installed==1 \\\n    --hash=sha256:00\n")
    assert f"not as {lock} has them: not-installed (missing)\n" in checked(lock)


def checked(lock: Path) -> str:
    program = f"source {ROOT}/runner-setup/lib.sh; MODE=check LOCK={lock}; ensure_locked {sys.prefix}"
    return subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout


def test_other_extras_than_the_locked_ones_need_constraints():
    for script in ("setup_mac.sh", "setup_gpu.sh"):
        command = ["bash", str(ROOT / "runner-setup" / script), "--dry-run", "--bus", "/tmp/bus.git", "--extras", "mcp"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("error: --extras mcp: the lock beside this script has the packages of ")
        assert "give --constraints FILE" in done.stderr
