"""`make demo` before anything is there: which Python it takes, what it says where there is none, and a second try."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "runner-setup" / "environment.sh"
MLX_RUNS = "runner-setup/mlx_runs_here.sh"
# Answers as an interpreter of a version: `-c` for version and modules, `-m venv` makes an environment of itself.
FAKE = """#!/bin/sh
case "$1 $2" in
  "-c import fcntl"*) exec {real} "$@" ;;
  "-c import ensurepip, venv") {has_venv}; exit ;;
  "-c "*) echo {version}; {new_enough}; exit ;;
  "-m venv") mkdir -p "$3/bin"; : >"$3/pyvenv.cfg"; cp "$0" "$3/bin/python" ;;
  "-m pip") echo "$@" >>"$PIP_CALLS"; {pip} ;;
esac
"""


class Machine:
    """A PATH with the tools of every system and the interpreters that a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.venv, self.calls = folder / "bin", folder / ".venv", folder / "pip-calls"
        self.bin.mkdir()
        for tool in ("sh", "rm", "rmdir", "mkdir", "cp", "printf"):
            (self.bin / tool).symlink_to(str(shutil.which(tool)))

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a shell here."""
        return {"PATH": str(self.bin), "PIP_CALLS": str(self.calls)}

    def python(self, name: str, version: str, *, has_venv: bool = True, pip: str = "true") -> Path:
        new_enough = tuple(map(int, version.split("."))) >= (3, 11)
        text = FAKE.format(version=version, new_enough=str(new_enough).lower(), has_venv=str(has_venv).lower(), pip=pip,
                           real=sys.executable)  # fmt: skip
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def command(self, *words: str, given: str = "") -> list[str]:
        """Return what starts an installation."""
        return [str(self.bin / "sh"), str(SCRIPT), "demo", str(self.venv), given, *(words or ("-e", "."))]

    def install(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, given=given), env=self.environment,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    def make(self, goal: str) -> subprocess.CompletedProcess[str]:
        """Run make in a folder that holds what it needs of a clone."""
        (self.venv.parent / "runner-setup").mkdir(exist_ok=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "runner-setup/environment.sh", MLX_RUNS):
            shutil.copy2(ROOT / name, self.venv.parent / name)
        for tool in ("make", "touch"):
            if not (self.bin / tool).exists():
                (self.bin / tool).symlink_to(str(shutil.which(tool)))
        return subprocess.run(
            [self.bin / "make", goal], cwd=self.venv.parent, env=self.environment,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_old_python_is_named_with_the_version_that_is_needed_and_leaves_nothing(machine: Machine) -> None:
    machine.python("python3", "3.9")

    done = machine.install()

    assert done.returncode == 1
    assert done.stderr.startswith("make demo: needs Python 3.11 or newer, found 3.9: ")
    assert done.stderr.endswith("make demo PYTHON=python3.13\n")
    assert len(done.stderr.splitlines()) == 1
    assert not machine.venv.exists()


def test_without_any_python_it_says_so(machine: Machine) -> None:
    done = machine.install()

    assert (done.returncode, "found none" in done.stderr) == (1, True)


@pytest.mark.parametrize(("candidate", "remedy"), [
    ("3.11.2-1+b1", "found none: sudo apt-get install python3-venv, then make demo again\n"),
    ("3.9.2-3", "then make demo PYTHON=python3.13\n"), ("3.10.6-1", "then make demo PYTHON=python3.13\n"),
    ("(none)", "then make demo PYTHON=python3.13\n"),
])  # fmt: skip
def test_the_package_is_named_where_the_system_has_one_that_is_new_enough(
    machine: Machine, candidate: str, remedy: str
) -> None:
    (machine.bin / "apt-cache").write_text(f"#!/bin/sh\nprintf 'python3:\\n  Candidate: {candidate}\\n'\n")
    (machine.bin / "apt-cache").chmod(0o755)

    assert machine.install().stderr.endswith(remedy)


@pytest.mark.parametrize("name", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_a_newer_one_beside_an_old_python3_is_taken(machine: Machine, name: str) -> None:
    machine.python("python3", "3.9")
    machine.python(name, name.removeprefix("python"))

    done = machine.install("-e", ".[mlx]")

    assert done.returncode == 0, done.stderr
    assert name.removeprefix("python") in done.stdout
    assert machine.calls.read_text().splitlines()[-1].endswith("-e .[mlx]")


def test_a_python_that_was_given_is_taken_or_refused_never_replaced(machine: Machine) -> None:
    machine.python("python3", "3.12")
    machine.python("old", "3.10")

    refused, missing = machine.install(given="old"), machine.install(given="python9")

    assert "needs Python 3.11 or newer, and old is 3.10: make demo PYTHON=python3.13" in refused.stderr
    assert "python9 is not there" in missing.stderr
    assert not machine.venv.exists()
    assert machine.install(given="python3").returncode == 0


def test_a_python_without_venv_names_the_package_that_has_it(machine: Machine) -> None:
    machine.python("python3", "3.11", has_venv=False)
    (machine.bin / "apt-get").symlink_to(str(shutil.which("true")))

    done = machine.install()

    assert (done.returncode, "apt-get install python3-venv" in done.stderr) == (1, True)
    assert not machine.venv.exists()
    machine.python("python3.12", "3.12")
    assert machine.install().returncode == 0


def empty_folder(machine: Machine) -> None:
    machine.venv.mkdir()


def old_interpreter(machine: Machine) -> None:
    (machine.venv / "bin").mkdir(parents=True)
    (machine.venv / "pyvenv.cfg").touch()
    shutil.copy(machine.python("old", "3.9"), machine.venv / "bin" / "python")


def interpreter_gone(machine: Machine) -> None:
    old_interpreter(machine)
    (machine.venv / "bin" / "python").unlink()
    (machine.venv / "bin" / "python").symlink_to("/nowhere/python3")


def no_pip(machine: Machine) -> None:
    old_interpreter(machine)
    shutil.copy(machine.python("bare", "3.12", pip="false"), machine.venv / "bin" / "python")


def interrupted(machine: Machine) -> None:
    machine.python("python3", "3.12", pip="case $3 in --version) ;; *) kill -9 $PPID ;; esac")
    assert machine.install().returncode != 0
    assert (machine.venv / "bin" / "python").exists()


@pytest.mark.parametrize(
    ("half_made", "why"),
    [
        (empty_folder, "its Python is not there"),
        (old_interpreter, "its Python is 3.9"),
        (interpreter_gone, "its Python is not there"),
        (no_pip, "it has no pip"),
        (interrupted, "its last installation was interrupted"),
    ],
)
def test_a_half_made_environment_is_made_anew_with_a_sentence(
    machine: Machine, half_made: Callable[[Machine], None], why: str
) -> None:
    half_made(machine)
    machine.python("python3", "3.12")

    done = machine.install()

    assert done.returncode == 0, done.stderr
    assert f"{machine.venv} cannot be used ({why}): made anew with python3\n" in done.stdout
    again = machine.install()
    assert (again.returncode, "made anew" in again.stdout) == (0, False)


def test_a_second_try_waits_for_an_installation_whose_make_was_killed(machine: Machine) -> None:
    go_on = machine.venv.parent / "go-on"
    late = f'mkdir -p "{machine.venv}/lib"; : >"{machine.venv}/lib/late"'
    waiting = f'until [ -e "{go_on}" ]; do sleep 0.05; done'
    slow = f"case $3 in --version) ;; *) exec >/dev/null 2>&1; kill -9 $PPID; {waiting}; {late} ;; esac"
    machine.python("python3", "3.12", pip=slow)
    (machine.bin / "sleep").symlink_to(str(shutil.which("sleep")))
    assert machine.install().returncode != 0
    machine.python("python3", "3.12")

    with subprocess.Popen(machine.command(), env=machine.environment, stdout=subprocess.PIPE, text=True) as again:
        try:
            assert again.stdout is not None
            assert "another installation into" in again.stdout.readline()
        finally:
            go_on.touch()
        again.stdout.read()
    assert again.returncode == 0
    assert not (machine.venv / "lib" / "late").exists()


def test_an_installation_that_something_killed_is_made_anew(machine: Machine) -> None:
    machine.python("python3", "3.12", pip="case $3 in --version) ;; *) kill -9 $$ ;; esac")

    done = machine.install()

    assert (done.returncode, "ended by signal 9: make demo again makes" in done.stderr) == (1, True), done.stderr
    machine.python("python3", "3.12")
    assert "its last installation was interrupted" in machine.install().stdout


def test_a_half_made_environment_stays_where_no_python_could_make_another(machine: Machine) -> None:
    old_interpreter(machine)
    machine.python("python3", "3.9")

    assert machine.install().returncode == 1
    assert (machine.venv / "pyvenv.cfg").exists()


def test_a_folder_that_is_no_environment_is_left_alone(machine: Machine) -> None:
    machine.venv.mkdir()
    (machine.venv / "thesis.tex").write_text("mine")
    machine.python("python3", "3.12")

    done = machine.install()

    assert (done.returncode, "move it away" in done.stderr) == (1, True)
    assert (machine.venv / "thesis.tex").read_text() == "mine"


def test_a_failed_installation_fails_and_is_not_taken_for_an_interrupted_one(machine: Machine) -> None:
    machine.python("python3", "3.12", pip="case $3 in --version) ;; *) exit 3 ;; esac")

    assert machine.install().returncode == 3
    assert "made anew" not in machine.install().stdout


def test_make_says_it_once_and_a_second_try_with_a_newer_python_works(machine: Machine) -> None:
    machine.python("python3", "3.9")
    first = machine.make("demo")
    assert (first.returncode, machine.venv.exists()) == (2, False)
    assert "make demo: needs Python 3.11 or newer, found 3.9: " in first.stderr

    machine.python("python3.13", "3.13")
    assert machine.make("requester").returncode == 0
    assert machine.calls.read_text().splitlines()[-1].endswith("-c constraints.txt -e .")
    assert "made anew" not in machine.make("requester").stdout
    for spoil in ((machine.venv / "bin" / "python").unlink, (machine.venv / ".installing").touch):
        spoil()
        again = machine.make("requester")
        assert (again.returncode, "made anew with python3.13" in again.stdout) == (0, True), again.stderr


@pytest.mark.parametrize(
    ("system", "glibc", "version"),
    [("Linux", "echo glibc 2.31", "2.31"), ("Linux", "exit 1", "none"), ("Linux", "echo glibc 2.35", None),
     ("Linux", "echo glibc 3.0", None), ("Darwin", "exit 1", None)],
)  # fmt: skip
def test_where_mlx_has_no_wheels_it_is_said_before_anything_is_installed(
    machine: Machine, system: str, glibc: str, version: str | None
) -> None:
    machine.python("python3", "3.12")
    for name, does in (("uname", f"echo {system}"), ("getconf", glibc)):
        (machine.bin / name).write_text(f"#!/bin/sh\n{does}\n")
        (machine.bin / name).chmod(0o755)
    (machine.bin / "kakeya-mac").symlink_to(str(shutil.which("true")))

    done = machine.make("demo")

    sentence = f"make demo: MLX needs glibc 2.35 or newer on Linux (Debian 12, Ubuntu 22.04), found {version}; "
    assert (sentence in done.stderr, machine.venv.exists()) == (version is not None, version is None), done.stderr
    assert version is None or "make requester\n" in done.stderr
    assert machine.make("requester").returncode == 0


@pytest.mark.slow
def test_with_a_real_python_pip_runs_in_the_environment(machine: Machine) -> None:
    path = machine.bin / "python3"
    path.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} "$@"\n')
    path.chmod(0o755)

    done = machine.install("--no-index", "pip")

    assert done.returncode == 0, done.stderr
    assert (machine.venv / "bin" / "pip").exists()
