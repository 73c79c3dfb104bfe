"""Roots of Debian with nothing in them but what `debootstrap` puts there, and an ordinary user.

Made once per release below ``build/bare-roots``; each case works in a copy. Needs root, Debian's packages `debootstrap`
and `bubblewrap`, and Debian's archive. The machine's own settings of pip are written into a root, and the folders that
they name are bound in, so that pip installs there what it installs here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.studies.report import ROOT

PATIENCE_S = 900.0
CACHE = ROOT / "build" / "bare-roots"
USER, SECOND_USER, UID = "owner", "user", 1000
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# Python 3.11 of Debian 12, built for Debian 11: stands for what `uv python install` or pyenv brings.
STAND_IN = "/opt/python3.11/bin/python3.11"
_BUILD = """set -e
cd /build
tar -xf python3.11_*.orig.tar.*
cd Python-3.11*
./configure --quiet --prefix=/opt/python3.11
make -s -j2 build_all
make -s altinstall
rm -rf /opt/python3.11/lib/python3.11/test
"""
_NEEDS = "build-essential zlib1g-dev libssl-dev libffi-dev liblzma-dev libbz2-dev libsqlite3-dev"


def do(argv: Sequence[str], timeout_s: float = PATIENCE_S) -> str:
    """Run a program that has to end well, and return what it printed.

    Raises:
        RuntimeError: it did not; with the end of what it said.
    """
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:5])} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-600:]}")
    return ran.stdout


@dataclass(frozen=True)
class PipSettings:
    """What this machine tells pip.

    Attributes:
        file: the text of one configuration file that has all of it.
        variables: what the environment adds.
        paths: files and folders that they name.
    """

    file: str
    variables: dict[str, str]
    paths: tuple[Path, ...]

    @classmethod
    def of_this_machine(cls) -> PipSettings:
        """Read them from pip."""
        listing = do([sys.executable, "-m", "pip", "config", "list"])
        pairs = re.findall(r"^global\.(\S+?)='(.*)'$", listing, re.MULTILINE)
        variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        variables.pop("PIP_CACHE_DIR", None)
        if "PIP_CERT" in variables:  # uv reads no setting of pip
            variables["SSL_CERT_FILE"] = variables["PIP_CERT"]
        words = " ".join([*(value for _, value in pairs), *variables.values()]).split()
        paths = {Path(word.removeprefix("file://")) for word in words if re.match(r"(file://)?/", word)}
        # An index is a folder of links to files beside it.
        paths = {path.parent if path.name == "simple" else path for path in paths if path.exists()}
        text = "[global]\n" + "".join(f"{name} = {value}\n" for name, value in pairs)
        return cls(text, variables, tuple(sorted(paths)))


class BareRoot:
    """One root, and what is typed in it.

    Args:
        folder: the root.
        binds: further files and folders of this machine, read-only, by their place in the root.
    """

    def __init__(self, folder: Path, binds: dict[str, Path] | None = None) -> None:
        self.folder = folder
        self.binds = binds or {}
        self.pip = PipSettings.of_this_machine()

    @classmethod
    def copy(cls, release: str, packages: str, folder: Path, binds: dict[str, Path] | None = None) -> BareRoot:
        """Return a copy of a release with some packages of it, and nothing that they only recommend."""
        do(["cp", "-a", "--reflink=auto", str(base(release)), str(folder)])
        root = cls(folder, binds)
        root.prepare()
        if packages:
            root.apt(packages)
        return root

    def prepare(self) -> None:
        """Write the settings of pip, make the folders that they name, and the users."""
        for path in self.pip.paths:
            (self.folder / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "etc" / "pip.conf").write_text(self.pip.file, encoding="utf-8")
        for name in (USER, SECOND_USER):
            uid = UID if name == USER else UID + 1
            self.command(["useradd", "--create-home", "--shell", "/bin/bash", "--uid", str(uid), name], user="root")

    def apt(self, packages: str) -> None:
        """Install packages, with no more than they need.

        Raises:
            RuntimeError: the release has one of them not.
        """
        install = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {packages}"
        ran = self.command(["sh", "-c", install], user="root")
        if ran.returncode != 0:
            raise RuntimeError(f"apt-get install {packages} ended with {ran.returncode}: {ran.stdout[-400:]}")

    def argv(self, command: Sequence[str], user: str = USER) -> list[str]:
        """Return how a command is started in the root, as somebody who has just logged in."""
        home = "/root" if user == "root" else f"/home/{user}"
        uid = {"root": 0, USER: UID}.get(user, UID + 1)
        variables = {"HOME": home, "USER": user, "PATH": PATH, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
                     "OMP_NUM_THREADS": "1", **self.pip.variables}  # fmt: skip
        words = ["bwrap", "--die-with-parent", "--clearenv", "--unshare-pid", "--unshare-ipc", "--bind",
                 str(self.folder), "/", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys",
                 "--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]  # fmt: skip
        # Not while packages are installed: one of them writes what pip's settings name.
        for path in () if uid == 0 else self.pip.paths:
            words += ["--ro-bind", str(path), str(path)]
        for place, path in self.binds.items():
            words += ["--ro-bind", str(path), place]
        for name, value in variables.items():
            words += ["--setenv", name, value]
        become = [] if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        return [*words, "--chdir", home, *become, *command]

    def command(
        self, command: Sequence[str], user: str = USER, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; both streams are in its output, as on a screen."""
        return subprocess.run(
            self.argv(command, user), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=timeout_s, check=False,
        )  # fmt: skip

    def shell(self, lines: str, user: str = USER, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Type lines into a shell that ends at the first that fails."""
        return self.command(["bash", "-e", "-c", lines], user, timeout_s)


def base(release: str) -> Path:
    """Return the folder of a release, made where it is not there.

    Raises:
        RuntimeError: it could not be made; with the remedy where a program is missing.
    """
    missing = [name for name in ("debootstrap", "bwrap") if shutil.which(name) is None]
    if os.getuid() != 0 or missing:
        raise RuntimeError(f"bare roots need root, and apt-get install debootstrap bubblewrap; missing: {missing}")
    folder, part = CACHE / release, CACHE / f"{release}.part"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)
        do(["debootstrap", "--variant=minbase", release, str(part)])
        part.rename(folder)
    return folder


def stand_in_python() -> Path:
    """Return Python 3.11 for Debian 11, built where it is not there: the folder that a root has as /opt/python3.11."""
    made = CACHE / "python3.11-of-bullseye"
    if made.exists():
        return made
    source, work = CACHE / "source.part", CACHE / "building.part"
    for folder in (source, work):
        shutil.rmtree(folder, ignore_errors=True)
    bookworm = BareRoot.copy("bookworm", "ca-certificates", source)
    listing = source / "etc" / "apt" / "sources.list"
    listing.write_text(listing.read_text() + listing.read_text().replace("deb ", "deb-src "), encoding="utf-8")
    fetch = "mkdir /build && cd /build && apt-get update -qq && apt-get source -qq --download-only python3.11"
    _well(bookworm.command(["sh", "-c", fetch], user="root"))
    builder = BareRoot.copy("bullseye", _NEEDS, work)
    shutil.copytree(source / "build", work / "build")
    _well(builder.command(["sh", "-c", _BUILD], user="root", timeout_s=2400))
    shutil.copytree(work / "opt" / "python3.11", made.with_suffix(".part"), symlinks=True)
    made.with_suffix(".part").rename(made)
    for folder in (source, work):
        shutil.rmtree(folder, ignore_errors=True)
    return made


def _well(ran: subprocess.CompletedProcess[str]) -> None:
    if ran.returncode != 0:
        raise RuntimeError(f"ended with {ran.returncode}: {ran.stdout[-600:]}")
