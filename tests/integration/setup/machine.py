"""A Linux machine below a folder, with a stub service manager, that the real set-up script runs on."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

from bridge.runner.maintenance.setup_checks import RECEIPT

ROOT = Path(__file__).resolve().parents[3]
SETUP = ROOT / "runner-setup"
SERVICE_MANAGER = """#!/bin/sh
# A service manager: `enable --now` starts a unit, `restart` starts it anew, `disable --now` stops it.
for unit; do :; done
state="$(dirname "$0")/running-$unit"
case "$1" in
  enable) echo on > "$state" ;;
  restart) echo restarted > "$state" ;;
  disable) rm -f "$state" ;;
  is-enabled|is-active) test -f "$state" ;;
esac
"""


class Host:
    """A machine below a folder, with the folders every Linux has."""

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self.source = source
        self.options: list[str] = []
        self.root = folder / "root"
        for name in ("opt", "etc/systemd/system", "etc/logrotate.d", "etc/sudoers.d", "var/lib", "var/log"):
            (self.root / name).mkdir(parents=True)
        (self.root / "etc/apparmor.d").mkdir()
        (self.root / "proc/sys/kernel").mkdir(parents=True)
        (self.root / "proc/sys/kernel/apparmor_restrict_unprivileged_userns").write_text("1\n")  # as on Ubuntu
        self.manager = folder / "service-manager"
        self.manager.write_text(SERVICE_MANAGER)
        self.manager.chmod(0o755)

    def setup(self, *options: str, token: str = "", path: str = "") -> subprocess.CompletedProcess[str]:
        command = [
            *("bash", str(SETUP / "setup_gpu.sh"), "--root", str(self.root), "--service-manager", str(self.manager)),
            *("--bus", "https://example.org/owner/bus.git", "--name", "box", "--python", sys.executable),
            *(
                "--package",
                str(self.source or ROOT),
                "--extras",
                "",
                "--constraints",
                str(ROOT / "constraints.txt"),
                *options,
            ),
        ]
        # Most of what is installed is never imported here: Python compiles what is, when it is.
        environment = {**os.environ, "PIP_NO_COMPILE": "1", **({"PATH": path} if path else {})}
        return subprocess.run(
            command, input=token, env=environment, capture_output=True, text=True, timeout=280, check=False
        )

    def running(self, unit: str) -> Path:
        """Return the stub's file that is there while a unit runs."""
        return self.manager.parent / f"running-{unit}"

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file()
            else "folder"
            for path in sorted(self.root.rglob("*"))
            if "opt/kakeya/" not in str(path)
        }


def copied_source(folder: Path) -> Path:
    """Copy what a package is built from: building writes beside the sources."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("bridge", "engine"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def linked_package(folder: Path, version: str | None = None) -> Path:
    """Write a wheel that consists of this tree and this interpreter's packages by name.

    What is installed starts as it should, in two seconds; `copied_source` takes a minute to build and download.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], version or project["version"]
    about = f"{name}-{version}.dist-info"
    scripts = "".join(f"{script} = {place}\n" for script, place in project["scripts"].items())
    files = {
        f"{name}-tree.pth": f"{ROOT}\n{sysconfig.get_path('purelib')}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{scripts}",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def twin(host: Host, folder: Path) -> Host:
    """Copy an installed host; the packages, which no fault touches, are shared by a link."""
    copy = Host(folder, host.source)
    shutil.rmtree(copy.root)
    shutil.copytree(host.root, copy.root, symlinks=True, ignore=shutil.ignore_patterns("lib", "lib64"))
    for name in ("lib", "lib64"):
        (copy.root / "opt/kakeya" / name).symlink_to(host.root / "opt/kakeya" / name)
    shutil.copytree(host.root / "var/lib", copy.root / "var/lib")
    for state in host.manager.parent.glob("running-*"):
        shutil.copy(state, copy.manager.parent / state.name)
    receipt = copy.root / "etc/kakeya" / RECEIPT
    moved = receipt.read_text().replace(str(host.root), str(copy.root))
    receipt.write_text(moved.replace(str(host.manager), str(copy.manager)))
    return copy
