"""A copy of a commit with an environment of its own, so that every process the tests start imports the copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.planted.fault import Fault

ROOT = Path(__file__).resolve().parents[2]


class Tree:
    """A copy of one commit in which faults are planted one at a time."""

    def __init__(self, folder: Path, commit: str) -> None:
        """Check a commit out, beside its environment, in a folder that does not exist yet.

        Raises:
            RuntimeError: what the environment imports is not the copy.
        """
        self.folder = folder
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, folder], check=True)
        _git(folder, "checkout", "--quiet", "--detach", _git(ROOT, "rev-parse", f"{commit}^{{commit}}"))
        self.commit = _git(folder, "rev-parse", "HEAD")
        self._environment(Path(sys.prefix), folder / ".venv")

    @property
    def python(self) -> Path:
        """The copy's interpreter."""
        return self.folder / ".venv" / "bin" / "python"

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """Plant a fault for as long as the block runs.

        Raises:
            FaultGone: it does not apply to this tree.
        """
        path, text = fault.planted(self.folder)
        before = path.read_text()
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        """Write a module and forget its compiled form: two texts of one second and size would share it."""
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def _environment(self, home: Path, copy: Path) -> None:
        """Copy an environment by hard links; whatever names the checkout's path is written anew."""
        shutil.copytree(home, copy, symlinks=True, copy_function=_link)
        old, new = str(ROOT).encode(), str(self.folder).encode()
        site = next(copy.glob("lib/python3*/site-packages"))
        for path in (*site.glob("*editable*"), *(copy / "bin").iterdir(), copy / "pyvenv.cfg"):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > 1_000_000:
                continue
            data, mode = path.read_bytes(), path.stat().st_mode
            if old in data:
                path.unlink()  # never written through: it is the checkout's own file
                path.write_bytes(data.replace(old, new))
                path.chmod(mode)
        self._check()

    def _check(self) -> None:
        code = "import bridge, engine; print(bridge.__file__, engine.__file__)"
        process = subprocess.run([self.python, "-I", "-c", code], cwd="/", check=True, capture_output=True, text=True)
        if any(not path.startswith(f"{self.folder}/") for path in process.stdout.split()):
            raise RuntimeError(f"got imports from {process.stdout.strip()}, expected them from {self.folder}")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()
