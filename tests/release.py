"""Build a release into dist/: the wheel, the models' weights, their licences, an SBOM of each host, digests of all.

The wheel is built twice, in two folders, time zones and orders of Python's sets, and must come to the same bytes:
whoever has the commit can build it again and compare. `python -m tests.release` needs a clean tree and the extra
`release`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from engine.cards.archive import pack
from engine.cli.assets import archive_name
from tests.drift import ROOT

DIST = ROOT / "dist"
HOSTS = ("mac", "gpu")
LICENCES = ("LICENSE", "NOTICE")  # the wheel has them inside; the archive of weights holds weights alone
UMASK = 0o022  # a wheel holds the modes of its files
CIRCUMSTANCES = ({"TZ": "UTC", "PYTHONHASHSEED": "1"}, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2"})


def build_wheel(commit: str, out: Path, circumstances: dict[str, str]) -> Path:
    """Build the wheel of a commit, and of nothing else that lies in the work tree."""
    epoch = _git("log", "-1", "--format=%ct", commit)
    with tempfile.TemporaryDirectory(prefix="kakeya-release-") as name:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", name], input=archive, check=True, umask=UMASK)
        subprocess.run(
            [sys.executable, "-P", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), name],
            env={**os.environ, "SOURCE_DATE_EPOCH": epoch, **circumstances},
            stdout=subprocess.DEVNULL,
            umask=UMASK,
            check=True,
        )
    (wheel,) = out.glob("*.whl")
    return wheel


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    if _git("status", "--porcelain"):
        print("error: the tree has changes; commit or put them away, a release is of a commit", file=sys.stderr)
        return 2
    commit = _git("rev-parse", "HEAD")
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="kakeya-wheels-") as name:
        first, second = (
            build_wheel(commit, Path(name) / environment["TZ"], environment) for environment in CIRCUMSTANCES
        )
        if digest(first) != digest(second):
            print(f"error: two builds of {commit} differ: {digest(first)} and {digest(second)}", file=sys.stderr)
            return 1
        DIST.mkdir()
        shutil.copy(first, DIST)
    pack(DIST / archive_name())
    for name in LICENCES:
        shutil.copy(ROOT / name, DIST)
    for host in HOSTS:
        lock = ROOT / "runner-setup" / "locks" / f"{host}.txt"
        options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--output-format", "JSON"]
        bill = DIST / archive_name().replace("-assets-", f"-{host}-").replace(".tar.gz", ".cdx.json")
        cyclonedx = str(Path(sys.executable).with_name("cyclonedx-py"))
        subprocess.run([cyclonedx, "requirements", *options, "--output-file", str(bill), str(lock)], check=True)
    files = sorted(DIST.iterdir())
    sums = "".join(f"{digest(file)}  {file.name}\n" for file in files)
    (DIST / "SHA256SUMS").write_text(sums, encoding="ascii")
    print(f"{commit}\n{sums}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
